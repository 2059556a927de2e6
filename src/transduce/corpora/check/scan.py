"""The first pass over a corpus: keys, lengths and places of all pairs, and the text of a sample of them."""

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.corpora.check.duplicates import Keys
from transduce.corpora.check.robust_statistics import Floats
from transduce.files.pairs import Corpus, ReadReport, Reservoir, read_placed_pairs
from transduce.files.texts import hashed, normalised

NumberedPair = tuple[int, str, str]
"""The number of a pair in the corpus, its source and its target."""
SAMPLE = 50_000
"""Number of pairs that the models of languages and words are learned from."""


@dataclass(frozen=True)
class CorpusScan:
    """What is kept of a corpus: 48 bytes for each pair, and the text of a sample."""

    corpus: Corpus
    report: ReadReport
    entries: NDArray[np.int32]
    lines: NDArray[np.int32]
    exact: Keys
    """Keys of the pairs as they are written."""
    src: Keys
    """Keys of the normalised sources."""
    tgt: Keys
    """Keys of the normalised targets."""
    src_lengths: Floats
    tgt_lengths: Floats
    sample: list[NumberedPair]

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, pair: int) -> tuple[str, int]:
        """The file and the line of a pair; for two files, the file of the sources."""
        return self.corpus[self.entries[pair]][0], int(self.lines[pair])

    def names(self) -> list[str]:
        """The file or files of each entry of the corpus."""
        return [" + ".join(files) for files in self.corpus]


def scan_corpus(corpus: Corpus) -> CorpusScan:
    """Read all files once."""
    report, sample = ReadReport(), Reservoir[NumberedPair](SAMPLE)
    entries, lines, exact, src, tgt = array("i"), array("i"), array("Q"), array("Q"), array("Q")
    src_lengths, tgt_lengths = array("d"), array("d")
    for number, (source, target, entry, line) in enumerate(read_placed_pairs(corpus, report)):
        entries.append(entry)
        lines.append(line)
        exact.append(hashed(f"{source}\t{target}"))
        src.append(hashed(normalised(source)))
        tgt.append(hashed(normalised(target)))
        src_lengths.append(len(source))
        tgt_lengths.append(len(target))
        sample.offer((number, source, target))
    return CorpusScan(
        corpus,
        report,
        entries=np.asarray(entries),
        lines=np.asarray(lines),
        exact=np.asarray(exact),
        src=np.asarray(src),
        tgt=np.asarray(tgt),
        src_lengths=np.asarray(src_lengths),
        tgt_lengths=np.asarray(tgt_lengths),
        sample=sample.kept,
    )

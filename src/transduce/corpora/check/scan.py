"""The first pass over a corpus: keys, lengths and places of all pairs, and the text of a sample of them.

Pairs that occur again, in the corpus or in the held-out set, are found by 64-bit keys of their texts.
"""

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.corpora.check.lengths import Flags, Floats
from transduce.files.pairs import Corpus, ReadReport, Reservoir, read_placed_pairs
from transduce.files.texts import hashed, normalised

Keys = NDArray[np.uint64]
NumberedPair = tuple[int, str, str]
"""The number of a pair in the corpus, its source and its target."""
SAMPLE = 50_000
"""Number of pairs that the models of languages and words are learned from."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


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
    report, sample = ReadReport(), Reservoir[NumberedPair](SAMPLE)
    columns = [array(code) for code in "iiQQQdd"]
    for number, (source, target, entry, line) in enumerate(read_placed_pairs(corpus, report)):
        keys = hashed(f"{source}\t{target}"), hashed(normalised(source)), hashed(normalised(target))
        for column, value in zip(columns, (entry, line, *keys, len(source), len(target)), strict=True):
            column.append(value)
        sample.offer((number, source, target))
    entries, lines, exact, src, tgt, src_lengths, tgt_lengths = map(np.asarray, columns)
    return CorpusScan(corpus, report, entries, lines, exact, src, tgt, src_lengths, tgt_lengths, sample.kept)


def pair_keys(src: Keys, tgt: Keys) -> Keys:
    """One key for both sides of each pair."""
    return src * _GOLDEN + tgt


def occurred_before(keys: Keys) -> Flags:
    """Flags every key that is not the first one of its value."""
    repeated = np.ones(len(keys), np.bool_)
    repeated[np.unique(keys, return_index=True)[1]] = False
    return repeated


def unordered_pair_keys(src: Keys, tgt: Keys) -> Keys:
    """One key for both sides of each pair, which is the same if they are swapped."""
    return pair_keys(np.minimum(src, tgt), np.maximum(src, tgt))


def find_leaks(src: Keys, tgt: Keys, held_out_src: Keys, held_out_tgt: Keys) -> tuple[Flags, Flags, Flags]:
    """Flags pairs that the held-out set has, those of which it has the source, and of which only the target.

    Each pair is flagged once. A text is a leak on either side of the held-out set, whose sides may be swapped.
    """
    texts = np.concatenate([held_out_src, held_out_tgt])
    pair = np.isin(unordered_pair_keys(src, tgt), unordered_pair_keys(held_out_src, held_out_tgt))
    source = np.isin(src, texts) & ~pair
    target = np.isin(tgt, texts) & ~pair & ~source
    return pair, source, target

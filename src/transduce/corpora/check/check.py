"""Check a corpus in two passes: the first collects statistics, the second classifies pairs by their text."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import numpy as np

from transduce.corpora.check.language import LanguageDetector
from transduce.corpora.check.lengths import IMPROBABLE, Flags, LengthModel, Shift, find_shifts
from transduce.corpora.check.lexicon import MIN_RECALL, RELATED, UNRELATED, TwoFoldLexicon, Words, unshared_text, words
from transduce.corpora.check.report import CheckResults, Findings
from transduce.corpora.check.scan import CorpusScan, NumberedPair, find_leaks, occurred_before, pair_keys, scan_corpus
from transduce.errors import DataError
from transduce.files.pairs import Corpus, PlacedPair, ReadReport, pair_writer, read_placed_pairs

ENOUGH = 500
"""Minimum number of pairs to learn lengths, languages and words from."""
_COPY = 15  # characters: a shorter copy may be a name
_CHUNK = 5_000  # pairs that are classified together


def examine(corpus: Corpus, held_out: Corpus, output: Path | None, log: Callable[[str], None]) -> CheckResults:
    """Check a corpus for leaks, duplicates, misaligned pairs and wrong languages.

    The pairs that pass are written to `output`. `held_out` is the validation and test text, which must not be in the
    corpus.
    """
    for name in (name for files in corpus for name in files):
        if name == "-" or Path(name).is_fifo():
            raise DataError(f"{name}: the text is read twice, so it cannot come from a pipe; give a file")
    with pair_writer(output) if output else nullcontext() as write:
        log("data: reading " + ", ".join(" + ".join(files) for files in (*corpus, *held_out)))
        scan = scan_corpus(corpus)
        held_out_scan = scan_corpus(held_out) if held_out else None
        findings = Findings(len(scan))
        _check_keys(scan, held_out_scan, findings)
        shifts = _check_lengths(scan, findings)
        notes = _check_text(scan, findings, write, log)
    return CheckResults(scan, held_out_scan, findings, shifts, notes)


def _check_keys(scan: CorpusScan, held_out: CorpusScan | None, findings: Findings) -> None:
    flags = findings.flags
    repeated = occurred_before(pair_keys(scan.src, scan.tgt))
    flags["duplicate"] = occurred_before(scan.exact)
    flags["near_duplicate"] = repeated & ~flags["duplicate"]
    flags["other_translation"] = occurred_before(scan.src) & ~repeated
    if held_out:
        leaks = find_leaks(scan.src, scan.tgt, held_out.src, held_out.tgt)
        flags["leaked_pair"], flags["leaked_source"], flags["leaked_target"] = leaks


def _check_lengths(scan: CorpusScan, findings: Findings) -> list[Shift]:
    """Flag pairs whose lengths do not match and shifted ranges; returns the latter."""
    if len(scan) < ENOUGH:
        return []
    src, tgt = scan.src_lengths, scan.tgt_lengths
    model = LengthModel.fit(src, tgt)
    findings.flags["length"] = np.abs(model.deviations(src, tgt)) > IMPROBABLE
    shifts: list[Shift] = []
    for entry in range(len(scan.corpus)):
        first, end = np.searchsorted(scan.entries, [entry, entry + 1]).tolist()
        shifts += find_shifts(src[first:end], tgt[first:end], model, start=first)
    for shift in shifts:
        findings.flags["shifted"][shift.first : shift.end] = True
    return shifts


def _check_text(
    scan: CorpusScan, findings: Findings, write: Callable[[str, str], None] | None, log: Callable[[str], None]
) -> list[str]:
    """Flag pairs by their text and write those that pass; returns notes on the reliability of the checks."""
    log(f"data: learning from {len(scan.sample):,} of {len(scan):,} pairs")
    classifier = PairClassifier([pair for pair in scan.sample if not findings.flags["shifted"][pair[0]]])
    log(f"data: checking {len(scan):,} pairs")
    for first, pairs in _chunks(scan):
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        findings.complete(first, sources, targets, classifier.classify(first, sources, targets))
        if write:
            for n in np.flatnonzero(~findings.left_out(first, len(pairs))):
                write(sources[n], targets[n])
    return classifier.notes


def _chunks(scan: CorpusScan) -> Iterator[tuple[int, list[PlacedPair]]]:
    """Read the corpus again, in chunks, each with the number of its first pair."""
    pairs, first = read_placed_pairs(scan.corpus, ReadReport()), 0
    while chunk := list(islice(pairs, _CHUNK)):
        if first + len(chunk) <= len(scan):
            yield first, chunk
        first += len(chunk)
    if first != len(scan):
        raise DataError(f"{', '.join(scan.names())}: changed while it was being read; run the same command again")


class PairClassifier:
    """Flags copies, wrong languages and unrelated pairs, by models that are learned from a sample of the corpus."""

    def __init__(self, sample: Sequence[NumberedPair]) -> None:
        self.notes: list[str] = []
        """How reliable the checks are, or why one is not made."""
        self._languages: LanguageDetector | None = None
        self._lexicon: TwoFoldLexicon | None = None
        if len(sample) < ENOUGH:
            self.notes.append(f"fewer than {ENOUGH} pairs to learn from: languages and words were not checked")
        else:
            self._learn(sample)

    def _learn(self, sample: Sequence[NumberedPair]) -> None:
        sources, targets = [words(pair[1]) for pair in sample], [words(pair[2]) for pair in sample]
        texts = _unshared_texts(sources, targets)
        numbers = np.array([number for number, _, _ in sample])
        self._languages = LanguageDetector(numbers, *texts)
        usual = np.flatnonzero(~self._languages.detect(numbers, *texts).any()).tolist()
        lexicon = TwoFoldLexicon(numbers[usual], [sources[n] for n in usual], [targets[n] for n in usual])
        if lexicon.recall >= MIN_RECALL:
            self._lexicon = lexicon
            self.notes.append(f"{lexicon.recall:.0%} of random pairings of this corpus are detected by their words")
        else:
            self.notes.append(
                "words were not checked, because too few translations could be learned: "
                f"{lexicon.recall:.0%} of random pairings would be detected"
            )

    def classify(self, first: int, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Flags]:
        """Flags for each issue, of consecutive pairs, the first of which has the number `first` in the corpus."""
        flags = {"copied": np.array([_is_copy(*pair) for pair in zip(sources, targets, strict=True)])}
        src_words, tgt_words = list(map(words, sources)), list(map(words, targets))
        related, numbers = np.zeros(len(sources), np.bool_), np.arange(first, first + len(sources))
        if self._lexicon:
            ratios = self._lexicon.log_ratios(numbers, src_words, tgt_words)
            flags["unrelated"] = ratios < UNRELATED
            related = ratios > RELATED * np.fromiter(map(len, tgt_words), np.int64, len(tgt_words))
        if self._languages:
            wrong = self._languages.detect(numbers, *_unshared_texts(src_words, tgt_words))
            flags["swapped"] = wrong.src_is_tgt & wrong.tgt_is_src
            flags["source_in_target_language"] = wrong.src_is_tgt
            flags["target_in_source_language"] = wrong.tgt_is_src
            # Rare words are as improbable as foreign ones, but a text that translates the other side is not foreign.
            flags["foreign_source"] = wrong.src_is_foreign & ~related
            flags["foreign_target"] = wrong.tgt_is_foreign & ~related
        return flags


def _unshared_texts(sources: Sequence[Words], targets: Sequence[Words]) -> tuple[list[str], list[str]]:
    return list(map(unshared_text, sources, targets)), list(map(unshared_text, targets, sources))


def _is_copy(source: str, target: str) -> bool:
    return len(source) >= _COPY and source.casefold() == target.casefold()

"""Detects copies, wrong languages and unrelated pairs by models that are learned from a sample of the corpus."""

from collections.abc import Sequence

import numpy as np

from transduce.corpora.check.language import LanguageDetector
from transduce.corpora.check.lexicon import MIN_RECALL, RELATED, UNRELATED, TwoFoldLexicon
from transduce.corpora.check.robust_statistics import Flags
from transduce.corpora.check.scan import NumberedPair
from transduce.corpora.check.words import Words, unshared_text, words

ENOUGH = 500
"""Minimum number of pairs to learn lengths, languages and words from."""
_COPY = 15  # characters: a shorter copy may be a name


class PairClassifier:
    """Flags pairs by their text."""

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

"""Language identification by character trigram models, which are learned from the two sides of the corpus.

A text here is a sequence of words in lower case, separated by spaces, without the words that both sides share.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.corpora.check.robust_statistics import Flags, Floats, robust_std

OTHER = 12.0
"""Minimum log-likelihood ratio, in nats, for a text to be attributed to the language of the other side."""
FOREIGN = 6.0
"""Standard deviations below the usual likelihood of a side's text from which a text is in neither language."""
FOREIGN_LENGTH = 20
"""Minimum length, in characters, of a foreign text: a shorter one may be a name."""

_MAX_CHARACTERS = 1000  # characters of a text that are used
_SYMBOLS = 128
_FREQUENT = 96  # characters that have a symbol of their own
_BLOCK = 7  # rarer characters share a symbol with 2 ** 7 neighbours in Unicode, which distinguishes scripts
_START = "\n\n"  # precedes each text, so that its first character has a context of two
_PSEUDO_COUNT = 5.0  # weight of the estimate from the next shorter context
_PLAUSIBLE = -4.0  # standard deviations down to which a text is plausible in a language
_USUAL = -2.0  # standard deviations below which a text is left out of the next round of training
_ROUNDS = 3


@dataclass(frozen=True)
class Trigrams:
    """The trigrams of texts: for each character of the concatenated texts, the id of the trigram that ends there."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def sums(self, values: NDArray[np.float32]) -> Floats:
        """For each text, the sum over its trigrams of these values, one for each trigram id."""
        per_character = values[self.ids]
        for position in range(len(_START)):
            per_character[self.starts + position] = 0
        return np.add.reduceat(per_character, self.starts, dtype=np.float64)

    def counts(self) -> Floats:
        """The number of occurrences of each trigram id."""
        inside = np.ones(len(self.ids), np.bool_)
        for position in range(len(_START)):
            inside[self.starts + position] = False
        return np.bincount(self.ids[inside], minlength=_SYMBOLS**3).astype(np.float64)


class Alphabet:
    """Maps characters to symbols; rare characters share a symbol with their neighbours in Unicode."""

    def __init__(self, sample: Sequence[str]) -> None:
        codes = np.arange(sys.maxunicode + 1)
        counts = np.bincount(_characters(_with_start(sample)), minlength=len(codes))
        self._symbols = (_FREQUENT + (codes >> _BLOCK) % (_SYMBOLS - _FREQUENT)).astype(np.int32)
        self._symbols[np.argsort(-counts, kind="stable")[:_FREQUENT]] = np.arange(_FREQUENT)

    def trigrams(self, texts: Sequence[str]) -> Trigrams:
        """The trigrams of these texts."""
        started = _with_start(texts)
        symbols = self._symbols[_characters(started)]
        ids = symbols.copy()
        ids[1:] += symbols[:-1] * _SYMBOLS
        ids[2:] += symbols[:-2] * _SYMBOLS**2
        lengths = np.fromiter(map(len, started), np.int64, len(started))
        return Trigrams(ids, np.cumsum(lengths) - lengths, lengths - len(_START))


def _with_start(texts: Sequence[str]) -> list[str]:
    return [_START + text[:_MAX_CHARACTERS] for text in texts]


def _characters(texts: Sequence[str]) -> NDArray[np.uint32]:
    return np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)


class LanguageModel:
    """A character trigram model, with the mean and standard deviation of the likelihood of its training text."""

    def __init__(self, alphabet: Alphabet, sample: Sequence[str]) -> None:
        everything = alphabet.trigrams(sample)
        usual = everything
        for _ in range(_ROUNDS):  # after the first without improbable texts, which may be in another language
            self._log_probabilities = _log_probabilities(usual.counts())
            log_likelihood = everything.sums(self._log_probabilities)
            self._rate = float(np.median(log_likelihood / np.maximum(everything.lengths, 1)))
            self._std = robust_std(self._raw_deviations(everything, log_likelihood), minimum=0.1)
            kept = self.deviations(everything) > _USUAL
            usual = alphabet.trigrams([text for text, keep in zip(sample, kept, strict=True) if keep])

    def log_likelihood(self, trigrams: Trigrams) -> Floats:
        """The log-likelihood of each text, in nats."""
        return trigrams.sums(self._log_probabilities)

    def deviations(self, trigrams: Trigrams) -> Floats:
        """The deviation of each text's log-likelihood from the mean for its length, in standard deviations."""
        return self._raw_deviations(trigrams, self.log_likelihood(trigrams)) / self._std

    def _raw_deviations(self, trigrams: Trigrams, log_likelihood: Floats) -> Floats:
        return (log_likelihood - self._rate * trigrams.lengths) / np.sqrt(np.maximum(trigrams.lengths, 1))


def _log_probabilities(counts: Floats) -> NDArray[np.float32]:
    """log p(third character | the two before), smoothed by the estimate from the next shorter context."""
    three = counts.reshape(_SYMBOLS, _SYMBOLS, _SYMBOLS)
    two = three.sum(axis=0)
    one = two.sum(axis=0)
    p1 = (one + 1) / (one.sum() + _SYMBOLS)
    p2 = (two + _PSEUDO_COUNT * p1) / (two.sum(axis=1, keepdims=True) + _PSEUDO_COUNT)
    p3 = (three + _PSEUDO_COUNT * p2) / (three.sum(axis=2, keepdims=True) + _PSEUDO_COUNT)
    return np.log(p3).astype(np.float32).ravel()


@dataclass(frozen=True)
class WrongLanguage:
    """Flags texts of each side that are in the language of the other side, or in neither."""

    src_is_tgt: Flags
    tgt_is_src: Flags
    src_is_foreign: Flags
    tgt_is_foreign: Flags

    def any(self) -> Flags:
        """Flags pairs in which at least one side is in a wrong language."""
        return self.src_is_tgt | self.tgt_is_src | self.src_is_foreign | self.tgt_is_foreign


class LanguageDetector:
    """Detects texts in a wrong language, by a model of each side."""

    def __init__(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        self._alphabet = Alphabet([*sources, *targets])
        self._src = LanguageModel(self._alphabet, sources)
        self._tgt = LanguageModel(self._alphabet, targets)

    def detect(self, sources: Sequence[str], targets: Sequence[str]) -> WrongLanguage:
        """Flag the texts in a wrong language."""
        src_is_tgt, src_is_foreign = self._classify(sources, self._src, self._tgt)
        tgt_is_src, tgt_is_foreign = self._classify(targets, self._tgt, self._src)
        return WrongLanguage(src_is_tgt, tgt_is_src, src_is_foreign, tgt_is_foreign)

    def _classify(self, texts: Sequence[str], own: LanguageModel, other: LanguageModel) -> tuple[Flags, Flags]:
        trigrams = self._alphabet.trigrams(texts)
        likelier = other.log_likelihood(trigrams) - own.log_likelihood(trigrams) > OTHER
        improbable = (own.deviations(trigrams) < -FOREIGN) & (trigrams.lengths >= FOREIGN_LENGTH)
        is_other = likelier & (other.deviations(trigrams) > _PLAUSIBLE)
        return is_other, (likelier | improbable) & ~is_other

"""How likely a text is as text of one side of the corpus, by trigrams of characters learnt from that side.

A text here is words in lower case with a space between them, less the words that the other side has too.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.corpora.check.robust import Flags, Floats, spread

OTHER = 12.0
"""Nats by which a text must be likelier as text of the other side to be called that."""
FOREIGN = 6.0
"""Standard deviations by which a text must be less likely than its side's usual text to be in neither language."""
FOREIGN_LENGTH = 20
"""Characters from which on that is asked: a shorter text may well be a name."""

_READ = 1000  # characters of a text that are looked at
_SYMBOLS = 128
_FREQUENT = 96
_BLOCK = 7  # rarer characters share a symbol with 2 ** 7 neighbours in Unicode: that tells scripts apart
_EDGE = "\n\n"  # comes before each text, so that its first character has two before it
_CAUTION = 5.0  # sightings of a context that the guess by a shorter context is worth
_PLAUSIBLE = -4.0  # standard deviations down to which a text may well be in a language
_USUAL = -2.0  # standard deviations below which a text is not learnt from again
_ROUNDS = 3


@dataclass(frozen=True)
class Trigrams:
    """For each character of texts laid end to end, the number of the three characters that end with it."""

    numbers: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def sums(self, per_trigram: NDArray[np.float32]) -> Floats:
        """For each text, the sum of what its trigrams are worth."""
        worth = per_trigram[self.numbers]
        for place in range(len(_EDGE)):
            worth[self.starts + place] = 0
        return np.add.reduceat(worth, self.starts, dtype=np.float64)

    def counts(self) -> Floats:
        """How often each trigram comes."""
        inside = np.ones(len(self.numbers), np.bool_)
        for place in range(len(_EDGE)):
            inside[self.starts + place] = False
        return np.bincount(self.numbers[inside], minlength=_SYMBOLS**3).astype(np.float64)


class Alphabet:
    """Symbols for characters: frequent ones have their own, rare ones share one with their neighbours in Unicode."""

    def __init__(self, sample: Sequence[str]) -> None:
        codes = np.arange(sys.maxunicode + 1)
        counts = np.bincount(_characters(_edged(sample)), minlength=len(codes))
        self._symbols = (_FREQUENT + (codes >> _BLOCK) % (_SYMBOLS - _FREQUENT)).astype(np.int32)
        self._symbols[np.argsort(-counts, kind="stable")[:_FREQUENT]] = np.arange(_FREQUENT)

    def trigrams(self, texts: Sequence[str]) -> Trigrams:
        """The trigrams of these texts."""
        edged = _edged(texts)
        symbols = self._symbols[_characters(edged)]
        numbers = symbols.copy()
        numbers[1:] += symbols[:-1] * _SYMBOLS
        numbers[2:] += symbols[:-2] * _SYMBOLS**2
        lengths = np.fromiter(map(len, edged), np.int64, len(edged))
        return Trigrams(numbers, np.cumsum(lengths) - lengths, lengths - len(_EDGE))


def _edged(texts: Sequence[str]) -> list[str]:
    return [_EDGE + text[:_READ] for text in texts]


def _characters(texts: Sequence[str]) -> NDArray[np.uint32]:
    return np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)


class LanguageModel:
    """The chance of a character after two others, and how much the likelihood of usual text varies."""

    def __init__(self, alphabet: Alphabet, sample: Sequence[str]) -> None:
        everything = alphabet.trigrams(sample)
        usual = everything
        for _ in range(_ROUNDS):  # after the first without improbable texts: they may be what we look for
            self._logs = _conditional_logs(usual.counts())
            log_likelihood = everything.sums(self._logs)
            self._rate = float(np.median(log_likelihood / np.maximum(everything.lengths, 1)))
            self._spread = spread(self._raw_deviations(everything, log_likelihood), least=0.1)
            kept = self.deviations(everything) > _USUAL
            usual = alphabet.trigrams([text for text, keep in zip(sample, kept, strict=True) if keep])

    def log_likelihood(self, trigrams: Trigrams) -> Floats:
        """Of each text, in nats."""
        return trigrams.sums(self._logs)

    def deviations(self, trigrams: Trigrams) -> Floats:
        """By how many standard deviations each text is likelier than usual text of its length, or less likely."""
        return self._raw_deviations(trigrams, self.log_likelihood(trigrams)) / self._spread

    def _raw_deviations(self, trigrams: Trigrams, log_likelihood: Floats) -> Floats:
        return (log_likelihood - self._rate * trigrams.lengths) / np.sqrt(np.maximum(trigrams.lengths, 1))


def _conditional_logs(counts: Floats) -> NDArray[np.float32]:
    """log p(third character | the two before), each context leaning on the next shorter one."""
    three = counts.reshape(_SYMBOLS, _SYMBOLS, _SYMBOLS)
    two = three.sum(axis=0)
    one = two.sum(axis=0)
    p1 = (one + 1) / (one.sum() + _SYMBOLS)
    p2 = (two + _CAUTION * p1) / (two.sum(axis=1, keepdims=True) + _CAUTION)
    p3 = (three + _CAUTION * p2) / (three.sum(axis=2, keepdims=True) + _CAUTION)
    return np.log(p3).astype(np.float32).ravel()


@dataclass(frozen=True)
class WrongLanguage:
    """Which texts of each side are in the other side's language, or in neither."""

    src_is_tgt: Flags
    tgt_is_src: Flags
    src_is_foreign: Flags
    tgt_is_foreign: Flags

    def any(self) -> Flags:
        """Pairs with something wrong."""
        return self.src_is_tgt | self.tgt_is_src | self.src_is_foreign | self.tgt_is_foreign


class Languages:
    """The languages of both sides, as the corpus has them."""

    def __init__(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        self._alphabet = Alphabet([*sources, *targets])
        self._src = LanguageModel(self._alphabet, sources)
        self._tgt = LanguageModel(self._alphabet, targets)

    def wrong(self, sources: Sequence[str], targets: Sequence[str]) -> WrongLanguage:
        """What is in the wrong language."""
        src_is_tgt, src_is_foreign = self._judge(sources, self._src, self._tgt)
        tgt_is_src, tgt_is_foreign = self._judge(targets, self._tgt, self._src)
        return WrongLanguage(src_is_tgt, tgt_is_src, src_is_foreign, tgt_is_foreign)

    def _judge(self, texts: Sequence[str], own: LanguageModel, other: LanguageModel) -> tuple[Flags, Flags]:
        trigrams = self._alphabet.trigrams(texts)
        likelier = other.log_likelihood(trigrams) - own.log_likelihood(trigrams) > OTHER
        improbable = (own.deviations(trigrams) < -FOREIGN) & (trigrams.lengths >= FOREIGN_LENGTH)
        is_other = likelier & (other.deviations(trigrams) > _PLAUSIBLE)
        return is_other, (likelier | improbable) & ~is_other

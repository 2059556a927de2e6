"""Language identification by scripts and character trigram models, learned from the two sides of the corpus.

A text here is a sequence of words in lower case, separated by spaces, without numbers and without the words that both
sides share.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import NDArray

from transduce.corpora.check.lengths import Flags, Floats, robust_std
from transduce.files.scripts import script

Numbers = NDArray[np.int64]
"""The number of each text in the corpus."""

OTHER = 12.0
"""Minimum log-likelihood ratio, in nats, for a text to be attributed to the language of the other side."""
FOREIGN = 5.0
"""Standard deviations below the usual likelihood of a side's text from which a text is in neither language."""
FOREIGN_LENGTH = 20
"""Minimum length, in characters, of a foreign text: a shorter one may be a name."""

_MAX_CHARACTERS = 1000  # characters of a text that are used
_SYMBOLS = 128
_FREQUENT = 96  # characters that have a symbol of their own
_BLOCK = 7  # rarer characters share a symbol with 2 ** 7 neighbours in Unicode, which distinguishes scripts
_START = "\n\n"  # precedes each text, so that its first character has a context of two
_PLAUSIBLE = -4.0  # standard deviations down to which a text is plausible in a language
_USUAL = -2.0  # standard deviations below which a text is left out of the next round of training
_PREDICTED = 20.0  # standard deviations more for each nat that the context of a character predicts of it
_ROUNDS = 3
_USUAL_SCRIPT = 0.02  # minimum share of a side's letters for a script that belongs there
_OTHER_SCRIPT = 4  # a script that is this many times as frequent on the other side does not belong to this one
_WRONG = 0.4  # minimum share of a wrong text's letters that do not belong there: Japanese is half kana, half Han
_MIN_LETTERS = 10  # fewer may be a name
_WIDE = 3  # letters that a Chinese, Japanese or Korean character counts as, about the length of what it stands for


class SideScripts:
    """The scripts of one side of the corpus, which reveal many texts in a wrong language."""

    def __init__(self, sample: Sequence[str]) -> None:
        counts = _letters("".join(sample))
        self._shares = {name: count / counts.total() for name, count in counts.items()}

    def wrong(self, texts: Sequence[str], other: "SideScripts") -> tuple[Flags, Flags]:
        """Flags texts of this side that are in scripts of the other side, and those in scripts of neither."""
        own_usual = {name for name in self._shares if self._is_usual(name, other)}
        other_usual = {name for name in other._shares if other._is_usual(name, self)}
        is_other, is_foreign = np.zeros(len(texts), np.bool_), np.zeros(len(texts), np.bool_)
        for n, text in enumerate(texts):
            if "LATIN" in own_usual and text.isascii():
                continue
            letters = _letters(text)
            wrong = letters.total() - sum(letters[name] for name in own_usual)
            if wrong >= max(_MIN_LETTERS, _WRONG * letters.total()):
                (is_other if 2 * sum(letters[name] for name in other_usual) >= wrong else is_foreign)[n] = True
        return is_other, is_foreign

    def _is_usual(self, name: str, other: "SideScripts") -> bool:
        share = self._shares.get(name, 0)
        return share == max(self._shares.values()) or (
            share >= _USUAL_SCRIPT and share * _OTHER_SCRIPT >= other._shares.get(name, 0)
        )


def _letters(text: str) -> Counter[str]:
    letters = Counter[str]()
    for char, count in Counter(text).items():
        if name := script(char):
            letters[name] += count * (_WIDE if east_asian_width(char) == "W" else 1)
    return letters


class Trigrams(NamedTuple):
    """The trigrams of texts: for each character of the concatenated texts, the id of the trigram that ends there."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def sums(self, values: NDArray[np.float32], chosen: Numbers) -> Floats:
        """For each text, the sum over its trigrams of the values of its chosen row, which has one for each id."""
        rows = np.repeat(chosen.astype(np.int32) * _SYMBOLS**3, self.lengths + len(_START))
        per_character = values.ravel()[self.ids + rows]
        for position in range(len(_START)):
            per_character[self.starts + position] = 0
        return np.add.reduceat(per_character, self.starts, dtype=np.float64)

    def counts(self) -> Floats:
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


class TrigramModel:
    """A character trigram model of each half of a sample, with which the texts of the other half are judged.

    A model that was trained on a text finds it more likely than other text of the same language, so it could not tell
    rare words from words of another language.
    """

    def __init__(self, alphabet: Alphabet, numbers: Numbers, sample: Sequence[str]) -> None:
        everything, usual = alphabet.trigrams(sample), np.ones(len(sample), np.bool_)
        for _ in range(_ROUNDS):  # after the first without improbable texts, which may be in another language
            halves = [np.flatnonzero(usual & (numbers % 2 == half)).tolist() for half in (1, 0)]
            counts = [alphabet.trigrams([sample[n] for n in half]).counts() for half in halves]
            self._log_probabilities, self._gains = np.stack([_log_probabilities(half) for half in counts], axis=1)
            log_likelihood = self.log_likelihood(numbers, everything)
            self._rate = float(np.median(log_likelihood / np.maximum(everything.lengths, 1)))
            self._std = robust_std(self._raw_deviations(everything, log_likelihood), minimum=0.1)
            usual = self.deviations(everything, log_likelihood) > _USUAL

    def log_likelihood(self, numbers: Numbers, trigrams: Trigrams) -> Floats:
        return trigrams.sums(self._log_probabilities, numbers % 2)

    def deviations(self, trigrams: Trigrams, log_likelihood: Floats) -> Floats:
        """The deviation of each text's log-likelihood from the mean for its length, in standard deviations."""
        return self._raw_deviations(trigrams, log_likelihood) / self._std

    def is_foreign(self, numbers: Numbers, trigrams: Trigrams, log_likelihood: Floats) -> Flags:
        """Flags improbable texts; the limit is lower if their characters are well predicted by those before them.

        Rare words and rare characters are improbable as well, but they follow the rules of the language.
        """
        gains = trigrams.sums(self._gains, numbers % 2) / np.maximum(trigrams.lengths, 1)
        limits = -FOREIGN - _PREDICTED * np.maximum(gains, 0)
        return (self.deviations(trigrams, log_likelihood) < limits) & (trigrams.lengths >= FOREIGN_LENGTH)

    def _raw_deviations(self, trigrams: Trigrams, log_likelihood: Floats) -> Floats:
        return (log_likelihood - self._rate * trigrams.lengths) / np.sqrt(np.maximum(trigrams.lengths, 1))


def _log_probabilities(counts: Floats) -> NDArray[np.float32]:
    """log p(third character | the two before) and, in a second row, its difference to log p(third character).

    Witten-Bell smoothing: an unseen character is the more probable, the more different ones have followed the context.
    There are many in a script of thousands of characters.
    """
    three = counts.reshape(_SYMBOLS, _SYMBOLS, _SYMBOLS)
    two = three.sum(axis=0)
    p1 = (two.sum(axis=0) + 1) / (two.sum() + _SYMBOLS)
    p2 = _interpolated(two, p1)
    log_p1, log_p2 = np.log(p1), np.log(p2)
    first, second = np.nonzero(three.any(axis=2))
    log_p3 = np.log(_interpolated(three[first, second], p2[second]))
    # Most contexts of two characters were not seen: their probabilities are those given the last character.
    both = np.empty((2, *three.shape), np.float32)
    for row, subtracted in zip(both, (0, log_p1), strict=True):
        row[:] = log_p2 - subtracted
        row[first, second] = log_p3 - subtracted
    return both.reshape(2, -1)


def _interpolated(counts: Floats, shorter: Floats) -> Floats:
    """Probabilities of the last character, interpolated with those given the next shorter context."""
    kinds = np.maximum((counts > 0).sum(axis=-1, keepdims=True), 1)
    return (counts + kinds * shorter) / (counts.sum(axis=-1, keepdims=True) + kinds)


class WrongLanguage(NamedTuple):
    """Flags texts of each side that are in the language of the other side, or in neither."""

    src_is_tgt: Flags
    tgt_is_src: Flags
    src_is_foreign: Flags
    tgt_is_foreign: Flags

    def any(self) -> Flags:
        return self.src_is_tgt | self.tgt_is_src | self.src_is_foreign | self.tgt_is_foreign


class Side(NamedTuple):
    scripts: SideScripts
    model: TrigramModel


class LanguageDetector:
    """Detects texts in a wrong language, by the scripts and a model of each side."""

    def __init__(self, numbers: Numbers, sources: Sequence[str], targets: Sequence[str]) -> None:
        self._alphabet = Alphabet([*sources, *targets])
        src, tgt = SideScripts(sources), SideScripts(targets)
        wrong = np.any([*src.wrong(sources, tgt), *tgt.wrong(targets, src)], axis=0)
        right = np.flatnonzero(~wrong).tolist()
        self._src, self._tgt = (
            Side(scripts, TrigramModel(self._alphabet, numbers[right], [texts[n] for n in right]))
            for scripts, texts in ((src, sources), (tgt, targets))
        )

    def detect(self, numbers: Numbers, sources: Sequence[str], targets: Sequence[str]) -> WrongLanguage:
        """Flag the texts in a wrong language; `numbers` are those of the pairs in the corpus."""
        src_is_tgt, src_is_foreign = self._classify(numbers, sources, self._src, self._tgt)
        tgt_is_src, tgt_is_foreign = self._classify(numbers, targets, self._tgt, self._src)
        return WrongLanguage(src_is_tgt, tgt_is_src, src_is_foreign, tgt_is_foreign)

    def _classify(self, numbers: Numbers, texts: Sequence[str], side: Side, other: Side) -> tuple[Flags, Flags]:
        other_script, foreign_script = side.scripts.wrong(texts, other.scripts)
        trigrams = self._alphabet.trigrams(texts)
        likelihood = side.model.log_likelihood(numbers, trigrams)
        by_other = other.model.log_likelihood(numbers, trigrams)
        likelier = other_script | (by_other - likelihood > OTHER)
        plausible = other.model.deviations(trigrams, by_other) > _PLAUSIBLE
        is_other = likelier & plausible & ~foreign_script
        is_foreign = foreign_script | likelier | side.model.is_foreign(numbers, trigrams, likelihood)
        return is_other, is_foreign & ~is_other

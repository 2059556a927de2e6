"""Which language a text is in: by its script and, of languages that share one, by its trigrams and words."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

from transduce.deadline import check_deadline
from transduce.errors import DataError
from transduce.files.languages import LANGUAGES, base_language, language_name
from transduce.files.scripts import known_scripts, script
from transduce.tokenizers.any_tokenizer import AnyTokenizer

AUTO = "auto"
"""The source language of a request whose language is to be detected, or that is not known."""
DETECTION_COST = 400
"""Cost of detecting the language of a text, in characters that are translated."""
LANGUAGES_OF_SCRIPTS = {
    "ARABIC": "ar fa ur", "BENGALI": "bn", "CJK": "zh", "CYRILLIC": "ru uk bg sr kk mk", "DEVANAGARI": "hi",
    "GEORGIAN": "ka", "GREEK": "el", "GUJARATI": "gu", "HANGUL": "ko", "HEBREW": "he", "KANA": "ja",
    "LATIN": "en de es fr it pt nl pl tr id vi cs sv ro hu da fi nb sk hr ca lt sl et lv ms tl sw gl eu sq is ga mt eo",
    "TAMIL": "ta", "TELUGU": "te", "THAI": "th",
}  # fmt: skip
"""Those with more text come first and are more probable: a short text in Spanish could be Galician as well."""

KNOWN = frozenset(code for codes in LANGUAGES_OF_SCRIPTS.values() for code in codes.split())
"""The languages that can be detected."""
MAX_CHARACTERS = 500
"""Characters of a text that are considered, which bounds the time."""
_TRIGRAMS = 600
"""Trigrams of a language in rules/detection.txt; after them are words. Both are in the order of their frequency."""
_TRIGRAM_LOG_PROBS = [-1.5 - math.log(rank + 20) for rank in range(_TRIGRAMS)]
_WORD_LOG_PROBS = [-2.0 - math.log(rank + 3) for rank in range(_TRIGRAMS)]
"""The log-probability of a rank, which differs little between languages."""
_RARE_TRIGRAM, _RARE_WORD, _FOREIGN_LETTERS = -9.5, -10.0, -11.5
"""Log-probability of a rare trigram, of a rare word, and of a trigram with a letter that no frequent one has."""
_TEMPERATURE = 3.0
"""Trigrams and words overlap, so the sum of their log-probabilities is too certain by about this factor."""
_TOKEN = re.compile(r"(?<![^\s(\[\"'’«„“¿¡-])[^\W\d_]+(?![^\s)\]\"'’».,;:!?…“”-])")
"""A word between spaces or punctuation, which is not part of an address, a tag or an identifier."""
_ARABIC_VOWELS = re.compile("[\u0640\u064b-\u0655\u0670]")
_CERTAIN = 0.9
"""Probability from which the most probable language is believed, even if the model cannot translate from it."""
_PROBABLE, _IMPROBABLE = 0.6, 0.1
"""Probability from which a language is named, and below which no language of the models is possible."""
FEW = 8
"""Number of trigrams and words below which no language is named: a text of one word may be a name."""
_FEW_LETTERS = 4
"""Number of letters in another script below which a text may be a symbol or a name, which is copied."""
_FAR, _FAR_PER_FEATURE = 15.0, 0.5
"""Difference of log-likelihoods from which a text certainly is in another language: of all of it, and of a feature.

Of languages that are close to each other, such as Danish and Norwegian, the second is never reached."""


def words(text: str) -> list[str]:
    return _TOKEN.findall(_ARABIC_VOWELS.sub("", text.lower()))


def trigrams(words: Iterable[str]) -> Iterator[str]:
    """The trigrams of words; "_" is the beginning or end of a word."""
    return (f"_{word}_"[at : at + 3] for word in words for at in range(len(word)))


@dataclass(frozen=True)
class Detected:
    """What is known about the language of a text."""

    language: str | None
    """None if it is not certain."""
    probability: float
    available: bool
    """Whether a model may be able to read it."""


def detected_code(language: str) -> str:
    """The code of a language here, without its region; all kinds of Norwegian are "nb"."""
    return (base_language(language) or "").replace("no", "nb")


class Likelihoods:
    """The log-likelihood of a text in each language of its script."""

    def __init__(self, text: str) -> None:
        text = text[:MAX_CHARACTERS]
        scripts = Counter(name for name in map(script, text) if name in LANGUAGES_OF_SCRIPTS)
        if scripts["KANA"]:
            scripts["KANA"] += scripts.pop("CJK", 0)
        self._letters = max(scripts.values(), default=0)
        codes = LANGUAGES_OF_SCRIPTS[max(scripts, key=scripts.__getitem__)].split() if self._letters else []
        found = words(text) if len(codes) > 1 else []
        counts, self.size = (Counter(trigrams(found)), Counter(found)), len(found) + sum(map(len, found))
        self.of = {code: _frequencies(code).log_likelihood(*counts) - _TEMPERATURE * math.log(rank)
                   for rank, code in enumerate(codes, start=1)}  # fmt: skip
        """Empty if the text has no letters."""

    @property
    def best(self) -> str:
        return max(self.of, key=self.of.__getitem__)

    def excludes(self, language: str) -> bool:
        """Whether the text certainly is not in a language, by its two-letter code."""
        if not self.of or language in self.of:
            far = self.of[self.best] - self.of[language] if self.of else 0.0
            return far >= max(_FAR, _FAR_PER_FEATURE * self.size)
        return self._letters >= _FEW_LETTERS

    def tempered(self, language: str) -> float:
        """The log-likelihood of a language; low if it has another script."""
        lowest = min(self.of.values(), default=0.0) - _FAR
        return self.of.get(language, lowest) / _TEMPERATURE

    def probabilities(self, codes: Iterable[str], log_priors: Mapping[str, float] | None = None) -> dict[str, float]:
        """The probability of each of some languages, if the text is in one of these."""
        values = {code: self.tempered(code) + (log_priors or {}).get(code, 0.0) for code in codes}
        highest = max(values.values())
        shares = {code: math.exp(value - highest) for code, value in values.items()}
        return {code: share / sum(shares.values()) for code, share in shares.items()}


class _Frequencies:
    """The frequent trigrams and words of a language, with their log-probabilities."""

    def __init__(self, trigrams: list[str], words: list[str]) -> None:
        self._trigrams = dict(zip(trigrams, _TRIGRAM_LOG_PROBS, strict=False))
        self._words = dict(zip(words, _WORD_LOG_PROBS, strict=False))
        self._letters = frozenset("".join(trigrams))

    def log_likelihood(self, trigrams: Counter[str], words: Counter[str]) -> float:
        total = sum(count * self._words.get(word, _RARE_WORD) for word, count in words.items())
        for trigram, count in trigrams.items():
            if (log_prob := self._trigrams.get(trigram)) is None:
                log_prob = _RARE_TRIGRAM if self._letters.issuperset(trigram) else _FOREIGN_LETTERS
            total += count * log_prob
        return total


def frequent_words(code: str) -> list[str]:
    """The most frequent words of a language; none if it is not known, or has a script of its own."""
    return _lines().get(code, "").split()[_TRIGRAMS:]


def detection_line(code: str) -> str:
    """The most frequent trigrams and words of a language, as in rules/detection.txt; empty if it is not known."""
    return _lines().get(code, "")


@cache
def _frequencies(code: str) -> _Frequencies:
    frequent = _lines().get(code, "").split()
    return _Frequencies(frequent[:_TRIGRAMS], frequent[_TRIGRAMS:])


@cache
def _lines() -> dict[str, str]:
    file = resources.files("transduce.translation.rules") / "detection.txt"
    return {line[:2]: line[3:] for line in file.read_text(encoding="utf-8").split("\n")}


class Detector:
    """Detects the language of texts, among all languages and among those of models."""

    def __init__(self, directions: Sequence[tuple[str | None, str | None]], tokenizers: Sequence[AnyTokenizer]) -> None:
        """`directions` and `tokenizers` are those of the models; a language that is not known is None."""
        self._directions, self._tokenizers = directions, tokenizers
        known = {code: None for pair in directions for code in pair if code}
        self._codes = {detected_code(code): code for code in reversed(known)} or {code: code for code in LANGUAGES}
        """The model's code of each language that can be detected; any language, if none is known."""
        sources = Counter(detected_code(source) for source, _ in directions if source)
        # A language from which more directions start is the more probable one if a text is short.
        self._log_priors = {code: math.log(sources[code] or 1) for code in self._codes}

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Languages of the models with their probabilities, most probable first; none if the text has no letters."""
        return self._ranked(Likelihoods(text))

    def _ranked(self, found: Likelihoods) -> list[tuple[str, float]]:
        if not found.of:
            return []
        probabilities = found.probabilities(self._codes, self._log_priors)
        return sorted(((self._codes[code], share) for code, share in probabilities.items()), key=lambda pair: -pair[1])

    def source(self, text: str, target: str) -> tuple[str, float]:
        """The most probable source language among those that are translated to the target, and its probability.

        It is the target itself if the text certainly is in that language, and AUTO with probability 0 if the source
        languages are not known. A text that certainly is in a language without this target is an error.
        """
        sources = [source for source, other in self._directions if source and other in (None, target)]
        if not sources:
            return AUTO, 0.0
        check_deadline()
        detected = self.detect(text)
        if not detected.available and (detected.language or self._tokenizers):
            if not detected.language:
                raise DataError("the text is in a script that no model has learned")
            raise self._without_target(detected.language, target)
        ranked = dict(self.rank(text))
        best = max(sources, key=lambda code: ranked.get(code, 0.0))
        first = next(iter(ranked), best)
        if first not in sources and ranked[first] >= _CERTAIN:
            if first != target:
                raise self._without_target(first, target)
            best = target
        return best, ranked.get(best, 0.0)

    def _without_target(self, source: str, target: str) -> DataError:
        names = [f"{language_name(code)} ({code})" for code in (source, target)]
        return DataError(f"the text is in {names[0]}, which no model translates to {names[1]}")

    def detect(self, text: str) -> Detected:
        """The language of a text, which may be one that no model reads, if it is certain."""
        text = text[:MAX_CHARACTERS]
        found = Likelihoods(text)
        if not (ranking := self._ranked(found)):
            return Detected(None, 0.0, True)
        best, probability = ranking[0]
        others = {self._codes.get(code, code): share for code, share in found.probabilities(found.of).items()}
        first = max(others, key=others.__getitem__)
        served = sum(others.get(code, 0.0) for code in self._codes.values())
        is_other = first not in self._codes.values() and served < _IMPROBABLE and others[first] >= _PROBABLE
        if is_other or not self.reads(text):
            certain = others[first] >= _PROBABLE and first not in self._codes.values()
            return Detected(first if certain else None, others[first] if certain else 0.0, False)
        certain = found.size >= FEW and probability >= _PROBABLE and 2 * others.get(best, 1.0) >= others[first]
        return Detected(best if certain else None, probability if certain else 0.0, True)

    def reads(self, text: str) -> bool:
        """Whether a model has learned the script of half of the letters."""
        letters = [name for name in map(script, text) if name]
        return 2 * sum(name in self._scripts for name in letters) >= len(letters)

    @cached_property
    def _scripts(self) -> frozenset[str]:
        pieces = (known_scripts(tokenizer.pieces(range(tokenizer.vocab_size))) for tokenizer in self._tokenizers)
        return frozenset(name for names in pieces for name in names)

"""What a translation must keep: numbers and times in words, halves, negations, and names that it would misspell.

The words of a language are data (the tables `numbers` and `negation` of rules/en.toml and others). A check says what is
certainly missing rather than what may be: an output counts as complete if it has something that could be meant.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import Any, Literal, NamedTuple
from unicodedata import normalize

from transduce.files.languages import base_language
from transduce.translation.locale import locale_of
from transduce.translation.rules import pattern, rules_of
from transduce.translation.text import Span

Kind = Literal["number", "scale", "time", "half", "negation", "name"]
_HALF_DAY = 12 * 60
_CLOCK = re.compile(r"(?<![\d.,:])(\d{1,2})(?:[:.]| ?h(?:eures?)? ?)([0-5]\d)(?!\w|[.,:]\d)")
_DIGITS = re.compile(r"\d+(?:[.,\u00a0\u202f ]\d{3})*")
_SMALL_INTEGER = re.compile(r"(?<![\w.,:/+-])[2-9](?![\w°%]|[.,:/-]\d|\.\s)")
_HALF_IN_DIGITS = re.compile(r"½|(?<!\d)1/2(?!\d)|(?<=\d)[.,]5(?!\d)")
_NAME = re.compile(r"(?<=[\w,] )(?=[^\W\d_a-zß-ÿ])[^\W\d_]{4,}(?:['’-][^\W\d_]{3,})*(?![\w-])")
"""A word with a capital letter that does not start a sentence."""
_CAPITALISED = re.compile(r"(?=[^\W\d_a-zß-ÿ])[^\W\d_]{3,}(?:['’-][^\W\d_]{3,})*")
RARE = 3
"""Number of tokens from which a word is taken for one that the model may misspell."""
_SIMILAR = 0.75
"""Similarity of two words from which one is taken for a misspelt copy of the other."""
_LARGEST_COUNT = 12
"""Numbers above this are seldom part of an idiom, so their digits can take their place."""


class Claim(NamedTuple):
    """Something that a text states and its translation must state too."""

    kind: Kind
    value: int | str
    """A number, the exponent of a scale such as a million, minutes of half a day, or a name; 0 for the others."""
    span: Span
    """Its place in the text."""

    def written(self, target: str | None) -> str:
        """How a text in the target language may write it, with digits; empty if that depends on the sentence."""
        if self.kind == "name" or (self.kind == "number" and int(self.value) > _LARGEST_COUNT):
            return str(self.value)
        locale = locale_of(target)
        if self.kind != "time" or not locale:
            return ""
        hour, minute = divmod(int(self.value), 60)
        return f"{hour or 12}{locale.clock or ':'}{minute:02}{locale.after_time}"


def claims(text: str, language: str | None, tokens: Callable[[str], int]) -> list[Claim]:
    """What a text in a language states; none if there are no rules for it.

    `tokens` counts those of a word. A name has more than `RARE`: models know how a language writes "Singapore".
    """
    words = _words(base_language(language))
    if not words:
        return []
    found = [time for time in words.times(text) if words.before_time.search(text[: time.span.start])]
    free = _blanked(text, found)
    found += words.numbers(free)
    found += (Claim("number", int(digit[0]), Span(*digit.span())) for digit in _SMALL_INTEGER.finditer(free))
    found += words.scales(free)
    found += (Claim("half", 0, Span(*half.span())) for half in words.half.finditer(free))
    if negation := words.negation.search(text):
        found.append(Claim("negation", 0, Span(*negation.span())))
    if not words.has_capital_nouns:
        found += (Claim("name", name[0], Span(*name.span())) for name in _NAME.finditer(text) if tokens(name[0]) > RARE)
    return found


def lost(
    claims: Sequence[Claim], source: str, output: str, target: str | None, tokens: Callable[[str], int]
) -> list[Claim]:
    """The claims of a source that an output in the target language does not make; none without rules for it."""
    words = _words(base_language(target))
    if not words or not claims:
        return []
    has = words.inventory(output)
    if any(claim.kind == "half" for claim in claims):
        has["half", 0] += len(_HALF_IN_DIGITS.findall(output)) - len(_HALF_IN_DIGITS.findall(source))
    has_scale = any(kind == "scale" for kind, _ in has)  # otherwise it may be written in digits
    result = []
    for claim in claims:
        key = claim.kind, claim.value
        if claim.kind == "scale" and not has_scale:
            continue
        if claim.kind == "name":
            if _is_misspelt(str(claim.value), source, output, tokens):
                result.append(claim)
        elif not has[key]:
            result.append(claim)
        elif claim.kind != "negation":
            has[key] -= 1
    return result


def _is_misspelt(name: str, source: str, output: str, tokens: Callable[[str], int]) -> bool:
    """Whether an output does not have a name, but a rare word that is like it and is not in the source."""
    if name in output:
        return False
    plain = _without_marks(name)
    others = {*_CAPITALISED.findall(output)} - {*_CAPITALISED.findall(source)}
    likeness = {word: SequenceMatcher(None, plain, _without_marks(word), autojunk=False).ratio() for word in others}
    return any(_SIMILAR <= ratio < 1.0 and tokens(word) >= RARE for word, ratio in likeness.items())


def _without_marks(word: str) -> str:
    """A word without accents, which a language may drop."""
    return "".join(letter for letter in normalize("NFD", word) if letter.isalpha())


def _blanked(text: str, claims: Sequence[Claim]) -> str:
    """The text with spaces in place of what the claims were found in."""
    for _, _, (start, end) in claims:
        text = text[:start] + " " * (end - start) + text[end:]
    return text


@cache
def _words(code: str | None) -> "_Words | None":
    rules = rules_of(code)
    return _Words(rules["numbers"], rules["negation"]) if "numbers" in rules else None


class _Words:
    """The words of a language for numbers, times, halves and negations."""

    def __init__(self, numbers: dict[str, Any], negation: dict[str, str]) -> None:
        below_20 = dict(zip(numbers["from_one"].split(), range(1, 20), strict=True))
        tens = dict(zip(numbers["tens"].split(), range(20, 100, 10), strict=True))
        values = {**below_20, **tens, **numbers["others"]}
        self._values = [(re.compile(word, re.IGNORECASE), value) for word, value in values.items()]
        word = _any_of(values)
        self._word = re.compile(word, re.IGNORECASE)
        number = rf"\b{word}(?:(?:{numbers['joints']}){word})*"
        self._number = re.compile(rf"{number}(?:{numbers['endings']})\b", re.IGNORECASE)
        self._number_in_word = re.compile(number, re.IGNORECASE)  # "two" in "zweijährig"
        self._also = [(re.compile(rf"\b(?:{word})\b", re.IGNORECASE), n) for word, n in numbers["also"].items()]
        self._scales = [(re.compile(rf"\b(?:{word})\b", re.IGNORECASE), n) for word, n in numbers["scales"].items()]
        self.half = re.compile(rf"\b(?:{numbers['half']})\b", re.IGNORECASE)
        hour = rf"(?P<hour>{_any_of([*below_20][:12])}|\d{{1,2}})"
        self._times = [
            (re.compile(rf"\b{time.replace('HOUR', hour)}\b", re.IGNORECASE), minutes)
            for time, minutes in numbers["times"].items()
        ]
        self.before_time = re.compile(rf"(?:{numbers.get('before_time', '')})$", re.IGNORECASE)
        self.has_capital_nouns = bool(numbers.get("capital_nouns"))
        self.negation = re.compile(rf"(?<!\w)(?:{pattern(negation['words'])})(?!\w)", re.IGNORECASE)
        self._may_negate = re.compile(rf"(?<!\w)(?:{pattern(negation['also'])})(?!\w)", re.IGNORECASE)

    def inventory(self, output: str) -> Counter[tuple[Kind, int | str]]:
        """How often an output states what, in words or in digits, and with words that may mean it."""
        found = [*self.times(output), *self.numbers(output, in_words=True), *self.scales(output)]
        has: Counter[tuple[Kind, int | str]] = Counter((claim.kind, claim.value) for claim in found)
        for words, value in self._also:
            has["number", value] += len(words.findall(output))
        for digits in _DIGITS.findall(output):
            has["number", int(re.sub(r"\D", "", digits))] += 1
            if not digits.isdigit():
                has += Counter(("number", int(part)) for part in re.findall(r"\d+", digits))
        for hour, minute in _CLOCK.findall(output):
            has["time", (60 * int(hour) + int(minute)) % _HALF_DAY] += 1
        has["half", 0] = len(self.half.findall(output))
        has["negation", 0] = bool(self.negation.search(output) or self._may_negate.search(output))
        return has

    def times(self, text: str) -> Iterator[Claim]:
        """Times in words; those of both halves of a day are the same."""
        for words, minutes in self._times:
            for time in words.finditer(text):
                hour = time["hour"]
                value = 60 * (int(hour) if hour.isdigit() else self._value(hour)) + minutes
                yield Claim("time", value % _HALF_DAY, Span(*time.span()))

    def scales(self, text: str) -> Iterator[Claim]:
        """Words for powers of a thousand from a million on, which are false friends: a billion has 9 or 12 zeros."""
        for words, exponent in self._scales:
            yield from (Claim("scale", exponent, Span(*scale.span())) for scale in words.finditer(text))

    def numbers(self, text: str, *, in_words: bool = False) -> Iterator[Claim]:
        """Numbers in words except one, which is an article in many languages; with `in_words`, at their beginnings."""
        for number in (self._number_in_word if in_words else self._number).finditer(text):
            values, at = list[tuple[int, int]](), 0  # each number, and the value of its last word
            for word in self._word.finditer(number[0]):
                value, joint = self._value(word[0]), number[0][at : word.start()]
                at = word.end()
                total, last = values[-1] if values else (0, 0)
                if value in (100, 1000) and 0 < total < value:
                    values[-1] = total * value, value
                elif 0 < value < _room(last) or (joint.isalpha() and 0 < last < 10 and value in range(20, 100, 10)):
                    values[-1] = total + value, value
                else:
                    values.append((value, value))
            yield from (Claim("number", total, Span(*number.span())) for total, _ in values if total != 1)

    def _value(self, word: str) -> int:
        return next(value for words, value in self._values if words.fullmatch(word))


def _room(last: int) -> int:
    """Below which a number is added to a word before it: "soixante" may be followed by all up to "dix-neuf"."""
    return last if last in (100, 1000) else 20 if last in range(20, 100, 10) else 0


def _any_of(words: Sequence[str] | dict[str, int]) -> str:
    return f"(?:{'|'.join(sorted(words, key=len, reverse=True))})"

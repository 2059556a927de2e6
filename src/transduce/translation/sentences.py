"""Sentence splitting in every language, and joining of the translated sentences.

ICU finds the places where a sentence can end by the rules of Unicode (UAX 29). They know every script, but no
abbreviations, so these places are filtered here with the rules of the language.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transduce.files.languages import base_language
from transduce.translation.boundaries import boundaries
from transduce.translation.rules import Abbreviations, matches

_OPENING = "\"'“‘«‹„‚([{<¿¡「『（《〈【〔［｛*_#"
_CLOSING = "\"'”’“‘»›)]}>」』）》〉】〕］｝*_"
_OPENING_WITHOUT_SPACE = "“‘([{「『（《〈【〔［｛"
_MARKS = ".!?…‥"
_JOINER = "\u200d"
# Han, kana, Thai, Lao, Tibetan, Burmese, Khmer and full-width forms: scripts that put no spaces between words.
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
# Marks, the quotes and brackets that close after them (in French after a space), and footnote numbers.
_TAIL = re.compile(rf"([{re.escape(_MARKS)}]+)((?:[ \u00a0\u202f][»›]|[{re.escape(_CLOSING)}])*)((?:\[\d{{1,4}}\])*)$")
_TAIL_LENGTH, _WORD_LENGTH, _NEXT_LENGTH = 24, 40, 60
"""Characters that are read around a possible end. A limit keeps the time linear for hostile text."""
LINE_BREAKS = r"(?<=\S)(?:\s*<[bB][rR]\s*/?>)+\s*(?=\S)"
"""Finds <br> tags between two texts, with the white space around them."""
_LINE_END = re.compile("[\n\r\x85\u2028\u2029]")
_SPACE = re.compile(r"\s+")
_NEXT_WORD = re.compile(r"[^\w]*(\w+)(['’.]?)")
_WORD_PARTS = re.compile(r"['’/–—]")
_ENUMERATOR = re.compile(r"[(\[]?(?:\d{1,3}|[^\W\d_]|[ivx]{1,4}|[IVX]{1,4})\.")
_ORDINAL = re.compile(r"\d{1,3}|\d{1,2}\.\d{1,2}|[IVXLC]{2,}")
_ACRONYM = re.compile(r"(?:[^\W\d_]{1,3}\.[ -]?)+[^\W\d_]{1,3}")
# A text of these characters has no end of a sentence inside; it needs no ICU.
_PLAIN = re.compile(r"[\w ,:/%&+()\"'“”’-]*")

_QUOTES = re.compile("[「『“（」』”）\n]")
_CLOSES = {"」": "「", "』": "『", "”": "“", "）": "（"}
_LONGEST_QUOTE = 200
_FULL_WIDTH_END = re.compile("[。！？｡．][」』”’）》]*$")
# What continues a sentence after a quotation: Japanese particles, or "he said" in Chinese.
_AFTER_QUOTE = re.compile(
    "[、，,]|と(?!ても|ころ|にかく)|って|は(?!い)|が|を|に|の|も(?![うしち])|で(?![もはす])|や(?![はっが])|へ"
    "|[^，。！？；：“”「」\\s]{0,6}?[说說问問答喊叫嚷吼骂罵道][道着著了]{0,2}(?:[，。：！]|$)"
)


class Sentence(NamedTuple):
    """A part of a text."""

    text: str
    separator: str
    """The white space and <br> tags between this part and the next one; empty if there are none."""


def split_sentences(text: str, language: str | None = None) -> list[Sentence]:
    """Split a text into sentences; joined with their separators, they are the text without surrounding white space.

    A line end always ends a sentence. `language` is a code such as "de" or "de-AT"; without it, abbreviations and
    ordinals of all languages count.
    """
    text = text.strip()
    if not text:
        return []
    cuts = [] if _PLAIN.fullmatch(text.rstrip(_MARKS + _CLOSING)) else list(_cuts(text, language))
    starts = [0, *(after for _, after in cuts)]
    ends = [*cuts, (len(text), len(text))]
    return [Sentence(text[start:end], text[end:after]) for start, (end, after) in zip(starts, ends, strict=True)]


def join_sentences(translations: Sequence[str], separators: Sequence[str], target_language: str | None) -> str:
    r"""Join the translations of sentences; `separators` are the white space after each sentence in the source.

    Line ends, tabs, <br> tags and escapes (\n) are kept. Otherwise, there is one space between sentences, but none in
    Chinese and Japanese. Thai, Lao, Khmer and Burmese put a space between sentences, though not between words.
    """
    unspaced = base_language(target_language) in ("zh", "ja")
    parts: list[str] = []
    between = last = ""
    for translation, separator in zip(translations, separators, strict=True):
        if translation:
            if last and not between:
                near = last[-1] + translation[0]
                between = "" if unspaced and _UNSPACED.search(near) else " "
            parts += [between, translation]
            between, last = "", translation
        if _LINE_END.search(separator) or not {*"\t<\\"}.isdisjoint(separator):
            between += separator
    return "".join(parts)


def _cuts(text: str, language: str | None) -> Iterator[tuple[int, int]]:
    """The end of each sentence and the start of the next one."""
    rules = Abbreviations.of(language)
    ends: list[tuple[int, int]] = []
    start = 0
    for end, after in _candidates(text, language):
        if _LINE_END.search(text, end, after) or _is_end(text, start, end, after, rules):
            ends.append((end, after))
            start = after
    # A part without any letter or digit, such as an emoji or "...", belongs to the sentence next to it.
    starts = [0, *(after for _, after in ends)]
    stops = [*(end for end, _ in ends), len(text)]
    has_word = [any(map(str.isalnum, text[start:stop])) for start, stop in zip(starts, stops, strict=True)]
    has_word_so_far = False
    for (end, after), here, following in zip(ends, has_word, has_word[1:], strict=False):
        has_word_so_far |= here
        if _LINE_END.search(text, end, after) or (has_word_so_far and following):
            yield end, after
            has_word_so_far = False


def _candidates(text: str, language: str | None) -> Iterator[tuple[int, int]]:
    """The places where a sentence may end: white space after a mark, and ICU's boundaries without white space."""
    locale = base_language(language) or ("el" if re.search("[\u0370-\u03ff]", text) else "en")
    found = boundaries("sentence", text, locale if re.fullmatch("[a-z]{2,3}", locale) else "en")
    known = set(found)
    places = []
    for space in _SPACE.finditer(text):
        end, after = space.span()
        marked = text[end - 1] in _MARKS + _CLOSING and _TAIL.search(text, max(0, end - _TAIL_LENGTH), end)
        if marked or after in known or _LINE_END.search(text, end, after):
            places.append((end, after))
    quotations = _quotations(text)
    for after in found[:-1]:
        if text[after].isspace() or text[after - 1].isspace():
            continue
        while after and text[after - 1] in _OPENING_WITHOUT_SPACE:  # ICU adds them to the sentence before
            after -= 1
        if after and not text[after - 1].isspace():
            places.append((after, after))
    if not quotations:
        yield from sorted(places)
        return
    index = 0
    for end, after in sorted(places):
        while index < len(quotations) and quotations[index][1] < end:
            index += 1
        inside = index < len(quotations) and quotations[index][0] < end <= quotations[index][1]
        if not inside or _LINE_END.search(text, end, after) or not _FULL_WIDTH_END.search(text, max(0, end - 9), end):
            yield end, after


def _quotations(text: str) -> list[tuple[int, int]]:
    """Start and end of the quotations of one line that are not too long, outermost ones only."""
    found: list[tuple[int, int]] = []
    opened: list[tuple[str, int]] = []
    for mark in _QUOTES.finditer(text):
        if mark[0] == "\n":
            opened.clear()
        elif mark[0] not in _CLOSES:
            opened.append((mark[0], mark.start()))
        elif opened and opened[-1][0] == _CLOSES[mark[0]]:
            _, start = opened.pop()
            if mark.start() - start <= _LONGEST_QUOTE:
                while found and found[-1][0] > start:
                    found.pop()
                found.append((start, mark.start()))
    return found


def _is_end(text: str, start: int, end: int, after: int, rules: Abbreviations) -> bool:
    """Whether the sentence that starts at `start` ends at `end`, if white space up to `after` follows."""
    tail = _TAIL.search(text, max(start, end - _TAIL_LENGTH), end)
    if text[after] == _JOINER or unicodedata.category(text[after]).startswith("M"):  # combines with the space
        return False
    if not tail:
        return _is_end_of_other_script(text, end, after)
    if end == after:  # no white space, as in "example.com/?q=1"
        return bool(
            _UNSPACED.match(text, after) and tail.start() > 0 and _UNSPACED.match(text, tail.start() - 1)
        ) and not (tail[2] and _AFTER_QUOTE.match(text, after, after + _NEXT_LENGTH))
    if text[after] in ",;:)]}.!?…" or (text[after] in "»›" and not text[after + 1 : after + 2].isalnum()):
        return False
    following = _NEXT_WORD.match(text, after, after + _NEXT_LENGTH)
    if not following:
        return True
    if following[1][0].islower():
        return False
    before = text[max(start, tail.start() - _WORD_LENGTH) : tail.start()].split()
    if not before:
        return True
    word = before[-1].lstrip(_OPENING)
    if tail[1] != ".":
        return not matches(word + tail[1], rules.sometimes) or _is_starter(following, rules)
    if tail[2] not in ("", ")", "]"):
        return True
    starts_item = len(before) > 1 and before[-2].endswith(":") and _ENUMERATOR.fullmatch(f"{word}.")
    if (starts_item or _ENUMERATOR.fullmatch(text, start, end)) and _has_case_or_digit(word):
        return False
    if word == "I" and len(before) > 1 and before[-2].lower() in rules.before_i:
        return True
    return _word_can_end(word, before[:-1], following, rules)


def _word_can_end(word: str, before: list[str], following: re.Match[str], rules: Abbreviations) -> bool:
    """Whether a full stop after this word ends the sentence."""
    spellings = [word, _WORD_PARTS.split(word)[-1]]
    for previous in reversed(before[-3:]):  # "z. B." has two words
        if not previous.endswith(".") or len(previous.lstrip(_OPENING)) > 4:
            break
        spellings.append(previous.lstrip(_OPENING) + spellings[-1])
    if any(matches(spelling, rules.never) for spelling in spellings):
        return False
    if following[1][0].isdigit() and any(matches(spelling, rules.numbered) for spelling in spellings):
        return False
    initial = len(spellings[1]) == 1 and spellings[1].isalpha() and _has_case_or_digit(spellings[1])
    if (
        initial
        or _ACRONYM.fullmatch(word)
        or word.endswith(rules.endings)
        or (rules.ordinals and _ORDINAL.fullmatch(word))
        or any(matches(spelling, rules.sometimes) for spelling in spellings)
    ):
        return _is_starter(following, rules)
    return True


def _is_starter(following: re.Match[str], rules: Abbreviations) -> bool:
    """Whether the next word often starts a sentence; an initial such as "A." does not count."""
    word, mark = following.groups()
    if mark == "." and len(word) == 1:
        return False
    word = word.capitalize() if len(word) > 1 and word.isupper() else word
    return word in rules.starters or (mark in ("'", "’") and f"{word}'" in rules.starters)


def _is_end_of_other_script(text: str, end: int, after: int) -> bool:
    """Whether ICU's end of a sentence holds, which is not one of the marks of Latin script."""
    if text[end - 1] in ";\u037e":  # the Greek question mark
        return end > 1 and "\u0370" <= text[end - 2] <= "\u03ff"
    if text[end - 1] in _CLOSING:
        return not _AFTER_QUOTE.match(text, after, after + _NEXT_LENGTH)
    return True


def _has_case_or_digit(word: str) -> bool:
    return any(letter.isdigit() or letter.lower() != letter.upper() for letter in word)

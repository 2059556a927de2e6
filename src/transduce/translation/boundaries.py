"""Boundaries in text as Unicode defines them: of sentences, words and grapheme clusters.

ICU finds them, except in Latin, Greek and Cyrillic text with emoji. For it, the rules of Unicode (UAX 29) are written
here as regular expressions, so that most texts in the languages of Europe need no ICU, whose data take 44 MB. Tests
compare the results with those of ICU.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from typing import Literal

from transduce.errors import DataError

# ICU counts UTF-16 code units, so characters outside the basic multilingual plane count twice. A lone surrogate cannot
# be passed to ICU.
_NOT_ONE_UNIT = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def boundaries(kind: Literal["sentence", "word", "character"], text: str, language: str = "en") -> list[int]:
    """The ends of the sentences, words or grapheme clusters of a text, including the end of the text.

    Spaces and punctuation marks count as words. Every call creates its own break iterator, because an iterator cannot
    be shared by threads.
    """
    # In Greek, a semicolon is a question mark.
    marked = text.replace(";", "?") if kind == "sentence" and language == "el" else text
    if (ends := european_boundaries(kind, marked)) is not None:
        return ends
    try:
        from icu4py import breakers
    except ImportError:
        if (ends := european_boundaries(kind, without_foreign_characters(marked))) is not None:
            return ends
        raise DataError(
            "splitting a text in this script into sentences or words needs ICU: pip install 'transduce[icu]'"
        ) from None
    breaker = {
        "sentence": breakers.SentenceBreaker,
        "word": breakers.WordBreaker,
        "character": breakers.CharacterBreaker,
    }[kind]
    if not _NOT_ONE_UNIT.search(text):
        return [end for _, end in breaker(text, language).segments()]
    text = _SURROGATE.sub("\ufffd", text)
    ends = [end for _, end in breaker(text, language).segments()]
    units = [*accumulate(1 + (character > "\uffff") for character in text)]
    return [bisect_left(units, end) + 1 for end in ends]


_LETTERS = (
    "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01c4\u01c6\u01c7\u01c9\u01ca\u01cc-\u01f1\u01f3-\u024f"
    "\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u1e00-\u1eff"
)
_CLOSING = "\"'()\\[\\]{}\u00ab\u00bb\u2018-\u201f\u2039\u203a"
_JOINING_SPACES = " \u2000-\u2006\u2008-\u200a"
_SPACES = f"\t{_JOINING_SPACES}\u00a0\u202f"
_LINE_ENDS = "\n\r\x85\u2028\u2029"
_CONTINUING = ",;:\\-\u2013\u2014"
_OTHERS = (
    "#$%&*+/<=>@\\\\^_`|~\u00a1-\u00a9\u00ac\u00ae-\u00b4\u00b6\u00b7\u00b9\u00bc-\u00bf\u00d7\u00f7"
    "\u2010-\u2012\u2015-\u2017\u2020-\u2023\u2025\u2026\u2030-\u2038\u2070\u2074-\u207c\u2080-\u208c\u20a0-\u20bf"
    "\u2103\u2109\u2116\u2122\u2200-\u22ff\ufffd"
)
_SYMBOLS = (
    "\u2190-\u21ff\u231a\u231b\u23e9-\u23f3\u2500-\u26ff\u2700-\u275a\u2794-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55"
)
_PICTURES = "\U0001f300-\U0001f3fa\U0001f400-\U0001f64f\U0001f680-\U0001f6ff\U0001f90c-\U0001f9ff\U0001fa70-\U0001faff"
_MODIFIERS = "\ufe0f\U0001f3fb-\U0001f3ff"
_JOINED = f"{_PICTURES}\u2640\u2642\u2695\u2696\u2708\u2764"

_KNOWN = f"{_LETTERS}0-9{_CLOSING}{_SPACES}{_LINE_ENDS}{_CONTINUING}.!?{_OTHERS}{_SYMBOLS}{_PICTURES}"
_SIMPLE = re.compile(f"[{_KNOWN}]*")
_FOREIGN = re.compile(f"[^{_KNOWN}{_MODIFIERS}\u200d\U0001f1e6-\U0001f1ff]")
_MOST_FOREIGN = 0.1
# A line end, an emoji with its modifiers, several joined by U+200D, or the two letters of a flag.
_CLUSTER = re.compile(
    f"\r\n|[{_JOINED}][{_MODIFIERS}]*(?:\u200d[{_JOINED}][{_MODIFIERS}]*)*|[{_SYMBOLS}][{_MODIFIERS}]+"
    "|[\U0001f1e6-\U0001f1ff]{2}"
)
_WORD = re.compile(
    f"(?:[{_LETTERS}0-9_\u202f]|(?<=[{_LETTERS}])['.\u2018\u2019:\u00b7](?=[{_LETTERS}])"
    f"|(?<=[0-9])['.\u2018\u2019,;](?=[0-9]))+|[{_JOINING_SPACES}]+|.",
    re.DOTALL,
)
_SENTENCE_END = re.compile(f"([.!?])([{_CLOSING}]*[{_SPACES}]*)([{_LINE_ENDS}]?)|[{_LINE_ENDS}]")
_NO_START = re.compile(f"[{_CONTINUING}.!?]")
_NEXT = re.compile(f"[{_LETTERS}{_LINE_ENDS}.!?]")
_LETTER = re.compile(f"[{_LETTERS}]")


def european_boundaries(kind: str, text: str) -> list[int] | None:
    """The ends of the sentences, words or grapheme clusters of a text; None if it has other characters than these."""
    clusters = [match.span() for match in _CLUSTER.finditer(text)]
    # A cluster is one character to the rules of words and sentences: a line end, or a symbol.
    single = _CLUSTER.sub(lambda match: "\n" if match[0] == "\r\n" else "\u2190", text) if clusters else text
    if not _SIMPLE.fullmatch(single):
        return None
    ends = _KINDS[kind](single)
    if not clusters:
        return ends
    lengths = [1] * len(single)
    removed = 0
    for start, end in clusters:
        lengths[start - removed] = end - start
        removed += end - start - 1
    totals = list(accumulate(lengths))
    return [totals[end - 1] for end in ends]


def without_foreign_characters(text: str) -> str:
    """The text with a letter or a symbol in place of each foreign character, if they are few and not punctuation marks.

    Its boundaries are those of the text, or nearly so: ICU would know, for example, that a combining mark ends no word.
    """
    foreign = _FOREIGN.findall(text)
    if len(foreign) > _MOST_FOREIGN * len(text) or any(unicodedata.category(c).startswith("P") for c in foreign):
        return text
    return _FOREIGN.sub(lambda match: _stand_in(match[0]), text)


def _stand_in(character: str) -> str:
    if unicodedata.category(character)[0] in "LM":
        return "X" if character.isupper() else "x"
    return "\u2190"


def _character_ends(text: str) -> list[int]:
    return list(range(1, len(text) + 1))


def _word_ends(text: str) -> list[int]:
    return [match.end() for match in _WORD.finditer(text)]


def _sentence_ends(text: str) -> list[int]:
    ends = [match.end() for match in _SENTENCE_END.finditer(text) if _ends_sentence(text, match)]
    return ends if not text or (ends and ends[-1] == len(text)) else [*ends, len(text)]


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """The rules SB6 to SB11 of UAX 29; their names are those of its table."""
    mark, gap, line_end = match.groups()
    after = match.end()
    if mark is None or line_end or after == len(text):
        return True
    if _NO_START.match(text, after):  # SB8a
        return False
    if mark != ".":
        return True
    following = text[after]
    if not gap and following.isdecimal():  # SB6
        return False
    before = match.start() - 1
    if not gap and following.isupper() and before >= 0 and _LETTER.match(text, before):  # SB7
        return False
    letter = _NEXT.search(text, after)  # SB8
    return not (letter and letter[0].islower())


_KINDS: dict[str, Callable[[str], list[int]]] = {
    "sentence": _sentence_ends,
    "word": _word_ends,
    "character": _character_ends,
}

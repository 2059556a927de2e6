"""Truecasing: ordinary capitals for a sentence that is written IN CAPITALS or In Title Case.

A model knows few words in such forms. It gets the sentence with the capitals that its vocabulary finds most likely, and
the translation of a sentence in capitals is written in capitals.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from transduce.tokenizers.symbols import SLOTS
from transduce.translation.stages.normalize import Readable
from transduce.translation.text import Context, Found, Segment, Shape, Span, Stage, Text, merge

_EXCLAMATION = re.compile(r"[^\W\d_]\s*[!?]")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_APOSTROPHE = re.compile("['’]")
_CAPITAL_WORDS, _TITLE_WORDS, _SHORT = 3, 4, 3
"""Least words of a sentence in capitals and of a title, and most letters of a title's words that may be small."""


class Truecase(Stage):
    """Gives a sentence in capitals or title case ordinary ones; protected spans and initialisms stay."""

    name = "truecase"

    def __init__(self, readable: Readable, encode: Callable[[str], list[int]], uses_slots: bool) -> None:
        self._readable, self._encode, self._most_spans = readable, encode, len(SLOTS) if uses_slots else 0

    def apply(self, text: Text, context: Context) -> Text:
        """The sentence with ordinary capitals and its shape, if the model sees a slot for each protected span."""
        spans = text.spans("protected")
        shape = shape_of(text.characters, spans) if len(spans) <= self._most_spans else None
        if not shape:
            return text
        copied = context.protection.copied(text.characters, spans) if context.protection else []
        kept = merge(merge(spans, self._readable.initialisms(text.characters)), copied)
        return replace(text, characters=truecase(text.characters, kept, self._encode), shape=shape)

    @staticmethod
    def restore(output: Found, segment: Segment) -> Found:
        """The output in capitals, if the sentence is; a forced prefix keeps its letters."""
        if segment.source.shape != "capitals" or segment.prefix:
            return output
        pieces, at = [], 0
        for start, end in output.kept:
            pieces += [in_capitals(output.text[at:start]), output.text[start:end]]
            at = end
        return replace(output, text="".join([*pieces, in_capitals(output.text[at:])]))


def shape_of(text: str, kept: Sequence[Span] = ()) -> Shape | None:
    """Whether a sentence is in capitals or in title case, apart from the spans that are kept."""
    words = [match[0] for match in _WORD.finditer(_without(text, kept))]
    joined = "".join(words)
    if joined == joined.upper() and joined != joined.lower():  # a word or two may be a name or an abbreviation
        return "capitals" if len(words) >= _CAPITAL_WORDS or _EXCLAMATION.search(text) else None
    small = [word for word in words if word[0] == word[0].lower() or word[1:] != word[1:].lower()]
    is_title = len(words) >= _TITLE_WORDS and 4 * len(small) < len(words) and all(len(word) <= _SHORT for word in small)
    return "title" if is_title else None


def truecase(text: str, kept: Sequence[Span], encode: Callable[[str], list[int]]) -> str:
    """The sentence with ordinary capitals, of the same length; the spans that are kept, in order, stay as they are.

    A word gets a small letter if the vocabulary then has fewer pieces for it, or a more frequent one. Names and words
    that it does not know are capitalized, and so is the first word.
    """
    pieces = lru_cache(maxsize=None)(lambda word: _rarity(encode(word)))
    ends = [span.end for span in kept]
    first = True

    def ordinary(match: re.Match[str]) -> str:
        nonlocal first
        word, small = match[0], match[0].lower()
        after = bisect_right(ends, match.start())
        if len(small) != len(word) or (after < len(kept) and kept[after].start < match.end()):
            return word
        stem, large = _APOSTROPHE.split(small)[0], small[0].upper() + small[1:]
        is_capitalized = first or pieces(stem[0].upper() + stem[1:]) <= pieces(stem)
        first = False
        return large if is_capitalized and len(large) == len(word) else small

    return _WORD.sub(ordinary, text)


def in_capitals(text: str) -> str:
    """The text in capitals, of the same length: ß has the capital ẞ."""
    return "".join("ẞ" if letter == "ß" else large if len(large := letter.upper()) == 1 else letter for letter in text)


def _rarity(tokens: list[int]) -> tuple[int, int]:
    """Number of pieces, and the rank of a word that is one piece: vocabularies are sorted by frequency."""
    return len(tokens), tokens[0] if len(tokens) == 1 else 0


def _without(text: str, spans: Sequence[Span]) -> str:
    for span in sorted(spans, reverse=True):
        text = f"{text[: span.start]} {text[span.end :]}"
    return text

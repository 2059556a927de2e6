"""A document: the texts to translate, and how their translations take the place of the texts in the file."""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transduce.tokenizers.token_ranges import Span
from transduce.translation.markup import TaggedText
from transduce.translation.projection import project

_MARKER = re.compile("\0([0-9]+)\0")


class Output(NamedTuple):
    """The translation of a text."""

    text: str
    alignment: Sequence[tuple[Span, Span]] = ()
    """Pairs of ranges of characters, of the source text and of the translation."""


def unchanged(text: str) -> str:
    """The text itself."""
    return text


def escape_xml(text: str) -> str:
    """Text as XML; quotes need no escape outside of attributes."""
    return html.escape(text, quote=False)


@dataclass
class Unit:
    """A part of a document that is written anew if one of its texts has a translation, such as a paragraph."""

    texts: list[TaggedText]
    write: Callable[[list[str]], str]
    """Makes the source of the unit from the markup of its translations."""
    escape: Callable[[str], str]
    """Writes text in the markup language."""
    copy: bool = True
    """Whether it stays as it is if every translation equals its text; not so if the file has both languages."""
    layout: Callable[[str], str] = unchanged
    """Breaks a translation into lines: replaces some of its spaces by newlines."""


class Splicer:
    """The source of a file, in which units are replaced. Units must be added from the last to the first.

    A unit may be inside another one, such as a footnote inside a paragraph; it is added before that one.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self.units: list[Unit] = []
        self._originals: list[str] = []
        self._places: list[tuple[int, int, int]] = []
        """Start, end and index of the outermost units, from the last to the first."""

    def raw(self, start: int, end: int) -> str:
        """A part of the source, with a marker for each unit in it."""
        parts, at = [], start
        for first, last, index in reversed(self._places):
            if first >= end:
                break
            if first >= at:
                parts += [self._source[at:first], f"\0{index}\0"]
                at = last
        return "".join([*parts, self._source[at:end]])

    def add(self, start: int, end: int, unit: Unit) -> None:
        """Add a unit for a part of the source."""
        self._originals.append(self.raw(start, end))
        while self._places and self._places[-1][0] < end:
            self._places.pop()
        self._places.append((start, end, len(self.units)))
        self.units.append(unit)

    def fill(self, written: Sequence[str | None]) -> str:
        """The source with units replaced, in the order of `units`; None leaves a unit as it is."""
        content = [self._originals[index] if text is None else text for index, text in enumerate(written)]
        result = self.raw(0, len(self._source))
        while "\0" in result:
            result = _MARKER.sub(lambda marker: content[int(marker[1])], result)
        return result


def text_document(splicer: Splicer, encoding: str) -> "Document":
    """The document of a text file. A character that the encoding lacks becomes a character reference."""
    return Document({"": splicer}, lambda written: written[""].encode(encoding, "xmlcharrefreplace"))


class Document:
    """A file to translate: its texts, in order, and the function that writes it with their translations."""

    def __init__(self, members: Mapping[str, Splicer], pack: Callable[[dict[str, str]], bytes]) -> None:
        self._members, self._pack = members, pack
        self._units = [(name, unit) for name, splicer in members.items() for unit in reversed(splicer.units)]
        self.texts = [text for _, unit in self._units for text in unit.texts]

    def write(self, outputs: Sequence[Output]) -> bytes:
        """The file with the translation of each text."""
        assert len(outputs) == len(self.texts), "one translation for each text"
        waiting, written = iter(outputs), dict[str, list[str | None]]()
        for name, unit in self._units:
            own = [next(waiting) for _ in unit.texts]
            written.setdefault(name, []).append(self._write_unit(unit, own))
        return self._pack({name: splicer.fill(written.get(name, [])[::-1]) for name, splicer in self._members.items()})

    @staticmethod
    def _write_unit(unit: Unit, outputs: list[Output]) -> str | None:
        if unit.copy and all(one.text == text.text for text, one in zip(unit.texts, outputs, strict=True)):
            return None
        return unit.write(
            [
                project(tagged, unit.layout(one.text), one.alignment, unit.escape)
                for tagged, one in zip(unit.texts, outputs, strict=True)
            ]
        )


def has_words(tagged: TaggedText) -> bool:
    """Whether a text has a letter outside of its protected ranges."""
    at = 0
    for start, end, _ in tagged.protected:
        if any(map(str.isalpha, tagged.text[at:start])):
            return True
        at = max(at, end)
    return any(map(str.isalpha, tagged.text[at:]))


def tagged_text(text: str) -> TaggedText:
    """A text without tags."""
    return TaggedText(" ".join(text.split()), [])

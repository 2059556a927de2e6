"""A document: the texts to translate, and how their translations take the place of the texts in the file."""

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transduce.deadline import check_deadline
from transduce.errors import DataError
from transduce.files.files import decode_text
from transduce.files.languages import base_language
from transduce.translation.markup import TaggedText
from transduce.translation.projection import project
from transduce.translation.token_ranges import Span

_MARKER = re.compile("\0([0-9]+)\0")
_PLAIN_NUMBER = re.compile(r"(?![1-9]\d{0,2}(?:[.,]\d{3})+(?:[.,]\d+)?\Z)\d+(?:[.,]\d+)*")
"""Without groups of three digits. By itself, "2.10" may be a section or a version."""


@dataclass(frozen=True)
class ReadOptions:
    """What a reader may need to know besides the file."""

    source: str | None = None
    """Source language, if it is known."""
    target: str | None = None
    """Target language, if it is known."""
    retranslate: bool = False
    """Whether texts that have a translation in the file are translated again."""
    output: str | None = None
    """Format of the translation, if the format of the file is only read."""

    def require_languages(self, name: str, source: str | None, target: str | None) -> None:
        """Raise an error if the file called `name` tells other languages; regions and unusual codes are ignored."""
        for side, told, expected in (("source", source, self.source), ("target", target, self.target)):
            code = base_language(told)
            if code and expected and code.isalpha() and len(code) <= 3 and code != base_language(expected):
                raise DataError(f"{name}: the {side} language of the file is {told}, not {expected}")


class AlignedTranslation(NamedTuple):
    """The translation of a text."""

    text: str
    alignment: Sequence[tuple[Span, Span]] = ()
    """Pairs of ranges of characters, of the source text and of the translation."""


def escape_xml(text: str) -> str:
    """Text as XML; quotes need no escape outside of attributes."""
    return html.escape(text, quote=False)


@dataclass
class Unit:
    """A part of a document that is written anew if one of its texts has a translation, such as a paragraph."""

    texts: list[TaggedText]
    escape: Callable[[str], str]
    """Writes text in the markup language."""
    write: Callable[[list[str]], str] = "".join
    """Makes the source of the unit from the markup of its translations."""
    copy: bool = True
    """Whether it stays as it is if every translation equals its text; not so if the file has both languages."""
    layout: Callable[[str], str] = str
    """Breaks a translation into lines: replaces some of its spaces by newlines."""
    attributes: frozenset[int] = frozenset()
    """Indices of the texts that are values of HTML attributes, which are escaped as such, and in one line."""

    def __post_init__(self) -> None:
        check_deadline(2)  # its texts take more memory than an element

    def translated(self, outputs: Sequence[AlignedTranslation]) -> str | None:
        """The source of the unit with these translations of its texts; None if it stays as it is."""
        check_deadline()
        pairs = list(zip(self.texts, outputs, strict=True))
        if self.copy and all(output.text == tagged.text for tagged, output in pairs):
            return None
        return self.write(
            [
                html.escape(output.text)
                if index in self.attributes
                else project(tagged, self.layout(output.text), output.alignment, self.escape)
                for index, (tagged, output) in enumerate(pairs)
            ]
        )


def text_unit(text: str, escape: Callable[[str], str], write: Callable[[list[str]], str] = "".join) -> Unit | None:
    """The unit of a text without tags; None if it has no words."""
    tagged = tagged_text(text)
    return Unit([tagged], escape, write) if has_words(tagged) else None


PlacedUnit = tuple[int, int, Unit]
"""Start and end of the part of the source that a unit replaces, and the unit."""


class Splicer:
    """The source of a file, in which units are replaced; `units` are in the order of the source.

    A unit may be inside another one, such as a footnote inside a paragraph; it is added before that one.
    """

    def __init__(self, source: str, units: Iterable[PlacedUnit] = ()) -> None:
        self._source = source
        self.units: list[Unit] = []
        self._originals: list[str] = []
        self._places: list[tuple[int, int, int]] = []
        """Start, end and index of the outermost units, from the last to the first."""
        for start, end, unit in reversed(list(units)):
            self.add(start, end, unit)

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
        """Add a unit for a part of the source; units must be added from the last to the first."""
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


class Document:
    """A file to translate: its texts, in order, and the function that writes it with their translations."""

    def __init__(self, members: Mapping[str, Splicer], pack: Callable[[dict[str, str]], bytes]) -> None:
        self._members, self._pack = members, pack
        self._units = [(name, unit) for name, splicer in members.items() for unit in reversed(splicer.units)]
        self.texts = [text for _, unit in self._units for text in unit.texts]
        self.warning = ""
        """What the translation lacks, if anything; some of it is known only after `write`."""

    def write(self, outputs: Sequence[AlignedTranslation]) -> bytes:
        """The file with the translation of each text."""
        assert len(outputs) == len(self.texts), "one translation for each text"
        waiting, written = iter(outputs), dict[str, list[str | None]]()
        for name, unit in self._units:
            written.setdefault(name, []).append(unit.translated([next(waiting) for _ in unit.texts]))
        return self._pack({name: splicer.fill(written.get(name, [])[::-1]) for name, splicer in self._members.items()})


def text_document(splicer: Splicer, encoding: str) -> Document:
    """The document of a text file. A character that the encoding lacks becomes a character reference."""
    return Document({"": splicer}, lambda written: written[""].encode(encoding, "xmlcharrefreplace"))


def read_text(data: bytes, name: str, _: ReadOptions) -> Document:
    """Read a text file, each line of which is translated separately."""
    source, encoding = decode_text(data, name)
    lines = ((match, text_unit(match[0], str)) for match in re.finditer(r"\S(?:[^\n]*\S)?", source))
    return text_document(Splicer(source, [(*match.span(), unit) for match, unit in lines if unit]), encoding)


def has_words(tagged: TaggedText) -> bool:
    """Whether a text has, outside protected ranges, a letter or a number that languages write differently: "1,200"."""
    free, at = "", 0
    for start, end, _ in tagged.protected:
        free += tagged.text[at:start]
        at = max(at, end)
    free = (free + tagged.text[at:]).strip()
    return any(map(str.isalpha, free)) or (any(map(str.isdecimal, free)) and not _PLAIN_NUMBER.fullmatch(free))


def tagged_text(text: str) -> TaggedText:
    """A text without tags."""
    return TaggedText(" ".join(text.split()), [])

"""TMX and XLIFF as sentence pairs, read as a stream: a translation memory may have gigabytes."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Protocol
from xml.parsers import expat

from transduce.files.files import binary_blocks
from transduce.files.formats.pair_format import EMPTY, Pair, PairFormat, UnusableError, decode
from transduce.files.xml_source import not_well_formed, safe_parser

LANGUAGES = "with other than two languages"
UNTRANSLATED = "without a translation"

_TMX_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
_XLIFF_CODES = frozenset({"bpt", "ept", "it", "ph"})


class _Handler(Protocol):
    """Collects the pairs of a format; `text` is the content of the element that ends, if it was wanted."""

    codes: frozenset[str]
    """Inline elements whose content is not text."""

    def start(self, name: str, attributes: dict[str, str]) -> bool: ...
    def end(self, name: str, text: str) -> Pair | str | None: ...


class _Tmx:
    """A pair is the two segments of a translation unit; the one in the header's source language comes first."""

    codes = _TMX_CODES

    def __init__(self) -> None:
        self._source, self._language = "", ""
        self._segments: list[tuple[str, str]] = []

    def start(self, name: str, attributes: dict[str, str]) -> bool:
        if name == "header":
            self._source = attributes.get("srclang", "").lower()
        elif name == "tu":
            self._segments = []
        elif name == "tuv":
            self._language = (attributes.get("xml:lang") or attributes.get("lang", "")).lower()
        return name == "seg"

    def end(self, name: str, text: str) -> Pair | str | None:
        if name == "seg":
            self._segments.append((self._language, text))
        if name != "tu":
            return None
        if len(self._segments) != 2:
            return LANGUAGES
        (first, one), (second, other) = self._segments
        base = self._source.partition("-")[0]
        if second.partition("-")[0] == base != first.partition("-")[0]:
            return other, one
        return one, other


class _Xliff:
    """A pair is the source and the target of a unit (version 1.2) or of a segment (version 2)."""

    codes = _XLIFF_CODES

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._inside_alternative = 0

    def start(self, name: str, attributes: dict[str, str]) -> bool:
        if name == "alt-trans":
            self._inside_alternative += 1
        elif name in ("trans-unit", "segment"):
            self._texts = {}
        return name in ("source", "target") and not self._inside_alternative

    def end(self, name: str, text: str) -> Pair | str | None:
        if name == "alt-trans":
            self._inside_alternative -= 1
        elif name in ("source", "target") and not self._inside_alternative:
            self._texts[name] = text
        if name not in ("trans-unit", "segment"):
            return None
        if not self._texts.get("target", "").strip():
            return UNTRANSLATED
        return self._texts.get("source", ""), self._texts["target"]


def _reader(make: Callable[[], _Handler]) -> Callable[[Path], Iterator[tuple[int, Pair | str]]]:
    """The `read` function of a format."""

    def read(path: Path) -> Iterator[tuple[int, Pair | str]]:
        handler, found = make(), list[tuple[int, Pair | str]]()
        parser = safe_parser(str(path))
        text: list[str] | None = None
        skipped = 0
        lines: list[int] = []

        def start(name: str, attributes: dict[str, str]) -> None:
            nonlocal text, skipped
            lines.append(parser.CurrentLineNumber)
            local = name.rpartition(":")[2]
            if text is not None:
                skipped += local in handler.codes
            elif handler.start(local, attributes):
                text = []

        def characters(data: str) -> None:
            if text is not None and not skipped:
                text.append(data)

        def end(name: str) -> None:
            nonlocal text, skipped
            line, local = lines.pop(), name.rpartition(":")[2]
            if text is not None and local in handler.codes:
                skipped -= 1
            elif text is None or local in ("seg", "source", "target"):
                pair = handler.end(local, "".join(text or []))
                text = None
                if pair is not None:
                    found.append((line, pair if isinstance(pair, str) else _usable(pair)))

        parser.StartElementHandler, parser.CharacterDataHandler, parser.EndElementHandler = start, characters, end
        for block in chain(binary_blocks(path), [b""]):
            try:
                parser.Parse(block, not block)
            except expat.ExpatError as error:
                raise not_well_formed(str(path), error) from None
            yield from found
            found.clear()

    return read


def _usable(pair: Pair) -> Pair | str:
    """The pair with each side in one line, or the problem."""
    try:
        source, target = (decode(" ".join(side.split()).encode()) for side in pair)
    except UnusableError as problem:
        return str(problem)
    return (source, target) if source and target else EMPTY


TMX = PairFormat((".tmx",), _reader(_Tmx))
XLIFF = PairFormat((".xliff", ".xlf"), _reader(_Xliff))

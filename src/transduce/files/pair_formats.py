"""File formats of sentence pairs: TSV, JSONL, tables, TMX, XLIFF and PO. To add one, add its `PairFormat` to the table.

A table (Parquet, Arrow, a Hugging Face dataset on disk) or a JSONL file has the columns "src" and "tgt", or a column
"translation" with one text for each of two languages; other columns are ignored. A line of TSV is source, tab, target;
further columns are ignored, and so is a first line that names the columns. Of TMX and XLIFF, which are read as streams
because a translation memory may have gigabytes, and PO, translated messages are pairs, unless they are fuzzy or plural.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree
from xml.parsers import expat

from transduce.errors import DataError
from transduce.files.files import COMPRESSIONS, MAX_LINE_BYTES, binary_blocks, raw_lines
from transduce.files.languages import LANGUAGES, direction_of_entry
from transduce.files.parquet import TABLE_SUFFIXES, is_table, read_table, table_writer
from transduce.files.po import read_messages

Pair = tuple[str, str]
T = TypeVar("T")
Item = TypeVar("Item")
Entries = Iterator[tuple[int, "Pair | UnusableError"]]
"""The line number of each entry, with its pair or, if it is unusable, the problem for the read report."""

# Problems of entries, as the read report words them.
BAD_UTF8 = "not UTF-8"
NUL = "with a NUL byte"
EMPTY = "with an empty side"
OVERLONG = f"longer than {MAX_LINE_BYTES:,} bytes"
BAD_JSON = 'not a row with texts "src" and "tgt"'
OTHER_LANGUAGES = "in other languages than the first row"
NO_TAB = "without a tab"
HEADER = "with names of columns in place of texts"
OTHER_THAN_TWO = "with other than two languages"
UNTRANSLATED = "without a translation"
FUZZY = "with a fuzzy translation"

_SIDES = frozenset({"source", "src", "input", "original", "term", "target", "tgt", "trg", "output", "translation"})
_LANGUAGE_NAMES = frozenset(name.lower() for name in LANGUAGES.values())
_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
"""Inline elements of TMX and XLIFF whose content is not text."""
_NOT_IN_A_COLUMN = re.compile(r"[\t\r\n]+")


@dataclass(frozen=True)
class PairFormat:
    """A file format that holds both sides of every pair."""

    suffixes: tuple[str, ...]
    """Endings of the file names, without the suffix of a compression."""
    read: Callable[[Path], Entries]
    write: Callable[[str, str], str] | None = None
    """Returns the text that stands for one pair in a file; None if the format is only read, or not text."""
    create: Callable[[Path], AbstractContextManager[Callable[[str, str], None]]] | None = None
    """If the format is not text: gives a function that writes one pair; the file appears when the block ends."""


class UnusableError(Exception):
    """A line does not hold a usable pair; the message is the problem as the read report words it."""


def decode(raw: bytes | None) -> str:
    """Decode one side of a pair, or raise `UnusableError`; None stands for an overlong line."""
    if raw is None:
        raise UnusableError(OVERLONG)
    if b"\0" in raw:
        raise UnusableError(NUL)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UnusableError(BAD_UTF8) from None
    if not text or text.isspace():
        raise UnusableError(EMPTY)
    return text


def parse_each(items: Iterable[Item], parse: Callable[[Item], T | None]) -> Iterator[tuple[int, T | UnusableError]]:
    """The number of each line or row, with what is parsed from it, or the problem with it; nothing if that is None."""
    for number, item in enumerate(items, start=1):
        try:
            if (parsed := parse(item)) is not None:
                yield number, parsed
        except UnusableError as problem:
            yield number, problem


def parse_row(line: bytes | None) -> Pair:
    """The first two columns of a line, or raise `UnusableError`; None stands for an overlong line."""
    if line is None:
        raise UnusableError(OVERLONG)
    source, *others = (decode(column) for column in line.split(b"\t", 2)[:2])
    if not others:
        raise UnusableError(NO_TAB)
    return source, others[0]


def _read_tsv(path: Path) -> Entries:
    for number, pair in parse_each(raw_lines(path), parse_row):
        names_columns = number == 1 and not isinstance(pair, UnusableError) and is_header(pair, path)
        yield number, UnusableError(HEADER) if names_columns else pair


def is_header(pair: Pair, path: Path) -> bool:
    """Whether a pair names the columns: two sides, or two languages, and is no translation of a short word.

    Language codes may be words: "it" is "es" in German. They count if one is "en", or if the file's name has them too.
    """
    names = {column.strip().lower() for column in pair}
    if len(names) == 1:
        return False
    by_code = names <= LANGUAGES.keys() and ("en" in names or {*(direction_of_entry([str(path)]) or ())} == names)
    return by_code or names <= _SIDES or names <= _LANGUAGE_NAMES


def _tsv_row(source: str, target: str) -> str:
    """Write a pair as a line; characters that would end a column or a line become a space."""
    return "\t".join(_NOT_IN_A_COLUMN.sub(" ", side) for side in (source, target)) + "\n"


TSV = PairFormat((".tsv",), _read_tsv, _tsv_row)


class RowPairs:
    """Makes pairs of the rows of one file: of the texts "src" and "tgt", or of "translation".

    "translation" has a text for each of two languages; the source is the language that comes first in the first row.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._languages: tuple[str, ...] = ()

    def pair(self, row: Any) -> Pair:
        try:
            by_name = "src" in row or "translation" not in row
            sides = (row["src"], row["tgt"]) if by_name else self._sides(row["translation"])
            source, target = (side.encode() for side in sides)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UnusableError(BAD_JSON) from None
        if max(len(source), len(target)) > MAX_LINE_BYTES:
            raise UnusableError(OVERLONG)
        return decode(source), decode(target)

    def _sides(self, texts: Any) -> list[Any]:
        if not isinstance(texts, dict) or len(texts) != 2:
            raise UnusableError(BAD_JSON)
        if not self._languages:
            self._languages = tuple(texts)
            if direction_of_entry([str(self._path)]) == self._languages[::-1]:
                raise DataError(
                    f"{self._path}: its rows have {self._languages[0]} first, but its name {self._languages[1]}; "
                    f"rename it, e.g. {'-'.join(self._languages)}{self._path.suffix}"
                )
        if {*texts} != {*self._languages}:
            raise UnusableError(OTHER_LANGUAGES)
        return [texts[language] for language in self._languages]


def _read_jsonl(path: Path) -> Entries:
    rows = RowPairs(path)

    def parse(line: bytes | None) -> Pair | None:
        if line is not None and not line.strip():
            return None
        text = decode(line)
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            raise UnusableError(BAD_JSON) from None
        return rows.pair(record)

    return parse_each(raw_lines(path), parse)


def _jsonl_row(source: str, target: str) -> str:
    return json.dumps({"src": source, "tgt": target}, ensure_ascii=False) + "\n"


JSONL = PairFormat((".jsonl", ".ndjson"), _read_jsonl, _jsonl_row)


def _read_rows(path: Path) -> Entries:
    return parse_each(read_table(path, ("src", "tgt", "translation")), RowPairs(path).pair)


@contextmanager
def _create_table(path: Path) -> Iterator[Callable[[str, str], None]]:
    if path.suffix in COMPRESSIONS:
        raise DataError(f"{path}: a table is not compressed by its name; name it {path.with_suffix('').name}")
    with table_writer(path) as add:
        yield lambda source, target: add({"src": source, "tgt": target})


TABLE = PairFormat(TABLE_SUFFIXES, _read_rows, None, _create_table)


_PairOf = Callable[[ElementTree.Element, str], Pair | UnusableError]


def safe_parser(name: str, encoding: str | None = None) -> expat.XMLParserType:
    """A parser that refuses entity declarations, which can expand without bound or name other files.

    Without an encoding, the file tells it.
    """

    def refuse(*_: object) -> None:
        raise DataError(f"{name}: XML that declares entities is not read; replace them by their text")

    parser = expat.ParserCreate(encoding)
    parser.EntityDeclHandler = refuse
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    return parser


def not_well_formed(name: str, error: expat.ExpatError) -> DataError:
    return DataError(f"{name}, line {error.lineno}: not well-formed XML: {expat.errors.messages[error.code]}")


def _xml_reader(units: tuple[str, ...], pair_of: _PairOf) -> Callable[[Path], Entries]:
    """Make the `read` function of an XML format: each of the elements `units` is read by `pair_of(unit, source)`.

    The source language is that of a TMX header. Only one unit is held in memory; inline codes are left out of it.
    """

    def read(path: Path) -> Entries:
        found = list[tuple[int, Pair | UnusableError]]()
        parser = safe_parser(str(path))
        builder: ElementTree.TreeBuilder | None = None
        source, first_line, codes = "", 0, 0

        def start(name: str, attributes: dict[str, str]) -> None:
            nonlocal builder, source, first_line, codes
            name = name.rpartition(":")[2]
            if builder is None and name in units:
                builder, first_line, codes = ElementTree.TreeBuilder(), parser.CurrentLineNumber, 0
            elif name == "header":
                source = attributes.get("srclang", "").lower()
            codes += name in _CODES
            if builder is not None and not codes:
                builder.start(name, attributes)

        def characters(data: str) -> None:
            if builder is not None and not codes:
                builder.data(data)

        def end(name: str) -> None:
            nonlocal builder, codes
            name = name.rpartition(":")[2]
            if builder is not None and not codes:
                element = builder.end(name)
                if name in units:
                    found.append((first_line, pair_of(element, source)))
                    builder = None
            codes -= name in _CODES

        parser.StartElementHandler, parser.CharacterDataHandler, parser.EndElementHandler = start, characters, end
        for block in chain(binary_blocks(path), [b""]):
            try:
                parser.Parse(block, not block)
            except expat.ExpatError as error:
                raise not_well_formed(str(path), error) from None
            yield from found
            found.clear()

    return read


def _tmx_pair(unit: ElementTree.Element, source: str) -> Pair | UnusableError:
    """The two segments of a translation unit; the one in the source language of the header comes first."""
    variants = [(variant, variant.find("seg")) for variant in unit.iterfind("tuv")]
    segments = [
        ((variant.get("xml:lang") or variant.get("lang") or "").lower().partition("-")[0], "".join(segment.itertext()))
        for variant, segment in variants
        if segment is not None
    ]
    if len(segments) != 2:
        return UnusableError(OTHER_THAN_TWO)
    (first, text), (second, other) = segments
    is_reversed = second == source.partition("-")[0] != first
    return _in_one_line(other, text) if is_reversed else _in_one_line(text, other)


def _xliff_pair(unit: ElementTree.Element, _: str) -> Pair | UnusableError:
    """The source and the target of a unit (version 1.2) or of a segment (version 2)."""
    sides = (unit.find("source"), unit.find("target"))
    source, target = ("" if side is None else "".join(side.itertext()) for side in sides)
    return _in_one_line(source, target) if target.strip() else UnusableError(UNTRANSLATED)


def _in_one_line(*sides: str) -> Pair | UnusableError:
    """The pair with each side in one line, or the problem."""
    try:
        source, target = (decode(" ".join(side.split()).encode("utf-8", "surrogateescape")) for side in sides)
    except UnusableError as problem:
        return problem
    return source, target


TMX = PairFormat((".tmx",), _xml_reader(("tu",), _tmx_pair))
XLIFF = PairFormat((".xliff", ".xlf"), _xml_reader(("trans-unit", "segment"), _xliff_pair))


def _read_po(path: Path) -> Entries:
    lines = (None if raw is None else raw.decode("utf-8", "surrogateescape") for raw in raw_lines(path))
    for message in read_messages(lines):
        if not message.id:
            continue
        if message.problem or "msgstr" not in message.strings:
            yield message.line, UnusableError(message.problem or UNTRANSLATED)
        elif not message.strings["msgstr"].text:
            yield message.line, UnusableError(UNTRANSLATED)
        elif message.fuzzy:
            yield message.line, UnusableError(FUZZY)
        else:
            yield message.line, _in_one_line(message.id, message.strings["msgstr"].text)


PO = PairFormat((".po", ".pot"), _read_po)

PAIR_FORMATS = (TSV, JSONL, TABLE, TMX, XLIFF, PO)


def format_of(path: Path, alternative: str = "") -> PairFormat:
    """The format of a file by its name; `alternative` ends the message of the error if there is none."""
    if path.is_dir():
        return TABLE
    for pair_format in PAIR_FORMATS:
        if format_suffix(path) in pair_format.suffixes:
            return pair_format
    raise DataError(f"{path}: cannot tell its format; end its name in {_suffixes_of(PAIR_FORMATS)}{alternative}")


def written_format(path: Path, *, as_text: bool = False) -> PairFormat:
    """The format by the name of a file to write; an error if there is none, or if it is only read.

    With `as_text`, the formats are those whose files are text.
    """
    written = [pair_format for pair_format in PAIR_FORMATS if pair_format.write or (pair_format.create and not as_text)]
    for pair_format in written:
        if format_suffix(path) in pair_format.suffixes:
            return pair_format
    raise DataError(f"{path}: pairs are not written in this format; end its name in {_suffixes_of(written)}")


def _suffixes_of(pair_formats: Iterable[PairFormat]) -> str:
    """The endings of the names of files of these formats, for a message."""
    *others, last = (suffix for pair_format in pair_formats for suffix in pair_format.suffixes)
    return f"{', '.join(others)} or {last}"


def require_one_side(path: Path) -> None:
    """Raise an error if the name of a file tells that it has pairs or rows, and not lines of one language."""
    if any(format_suffix(path) in pair_format.suffixes for pair_format in PAIR_FORMATS):
        raise DataError(f"{path} is a file of pairs or rows; give text of one language, one sentence on each line")


def writer_of(path: Path) -> Callable[[str, str], str]:
    """The function that writes a pair in the format that a file's name tells."""
    write = written_format(path, as_text=True).write
    assert write
    return write


def has_pairs(path: Path) -> bool:
    """Whether the name of a file tells that it has pairs; a .jsonl file or a table may have texts instead."""
    return not has_rows(path) and any(format_suffix(path) in pair_format.suffixes for pair_format in PAIR_FORMATS)


def has_rows(path: Path) -> bool:
    """Whether a file has rows with named columns: a .jsonl file or a table."""
    return format_suffix(path) in JSONL.suffixes or is_table(path)


def format_suffix(path: Path) -> str:
    """The suffix that tells a file's format, in lower case: the last one that is not the suffix of a compression."""
    return (path.with_suffix("") if path.suffix in COMPRESSIONS else path).suffix.lower()

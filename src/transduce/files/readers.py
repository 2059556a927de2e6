"""Readers: what the examples of a corpus are. An example is a tuple of texts, or an array and texts.

Texts of one language are lines, or documents, which are running text with its line breaks. A .jsonl file or a table
holds one text per row, in the field "text"; any other file has one on each line, or is one document. A document may be
of any length, so it is read in pieces.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transduce.errors import DataError
from transduce.features import Registry
from transduce.files.files import raw_lines, text_blocks
from transduce.files.pair_formats import BAD_UTF8, NUL, UnusableError, decode, has_rows, require_one_side
from transduce.files.pairs import Corpus, ReadReport, read_pairs, require_usable
from transduce.files.parquet import is_table, read_table

Tokens = tuple[Sequence[int], ...]
"""The tokens of each stream of an example."""
PIECE = 1 << 20
"""Approximate number of characters of a piece."""
BAD_ROW, BLANK, OVERLONG_ROW = 'not a row with a text "text"', "without text", "longer than 1 GB"
_MAX_ROW_BYTES = 1 << 30


class DocumentPiece(NamedTuple):
    """A part of a document, which ends at a line break unless a line is longer than a piece."""

    text: str
    is_last: bool
    """Whether the document ends here."""


@dataclass(frozen=True)
class Reader:
    """How the files of a corpus are read."""

    streams: tuple[str, ...]
    """The name of each stream, which is part of the file names of token shards."""
    read: Callable[..., Iterator[tuple[Any, ...]]]
    """`read(corpus, report, reverse=...)` yields the usable examples in order; `reverse` exchanges sides of pairs."""
    has_sides: bool = False
    """Whether an example is a source text and a target text, so that text may have a direction."""
    has_translations: bool = False
    """Whether the target text is a translation of the source text."""
    arrays: bool = False
    """Whether the first item of an example is an array of numbers, for example pixels, instead of a text."""
    labels: bool = False
    """Whether the last item of an example is the name of a class, whose stream is its number."""
    pieces: Callable[..., Iterator[DocumentPiece]] | None = None
    """If examples are documents, which may be long: `pieces(corpus, report)` yields them in pieces."""
    symbols: Callable[[Corpus], list[str]] = lambda _: []
    """The symbols that the vocabulary of a training corpus must have for this reader."""
    named_files: Callable[[Path], Iterable[Path]] = lambda _: ()
    """The files that a file of the corpus names and that are read as well."""
    respeller: Callable[[Sequence[str]], Callable[[Tokens], Tokens]] = lambda _: lambda tokens: tokens
    """For the pieces of a vocabulary, a function that corrects the tokens of an example after BPE-dropout."""

    revision: str = ""
    """Part of the key of prepared text: another one, if examples of older versions must not be reused."""

    def texts(self, example: Sequence[Any]) -> Sequence[str]:
        """The items of an example that are texts."""
        return example[int(self.arrays) : len(example) - int(self.labels)]


def read_pieces(corpus: Corpus, report: ReadReport) -> Iterator[DocumentPiece]:
    """Yield the documents of a corpus in pieces; an unusable row is left out and counted in the report."""
    report.noun = "document"
    for files in corpus:
        name = single_file(files)
        yield from _rows(name, report) if has_rows(Path(name)) else _whole_file(name, report)
    require_usable(corpus, report, "text")


def read_documents(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[str]]:
    """Yield the documents of a corpus; `reverse` has no meaning for them."""
    parts: list[str] = []
    for piece in read_pieces(corpus, report):
        parts.append(piece.text)
        if piece.is_last:
            yield ("".join(parts),)
            parts = []


def _whole_file(name: str, report: ReadReport) -> Iterator[DocumentPiece]:
    require_one_side(Path(name))
    held, blank = "", True  # a piece is held back until it is known whether another one follows
    for block in text_blocks(Path(name)):
        held += block
        blank = blank and held.isspace() if held else blank
        while len(held) >= 2 * PIECE and not blank:
            cut = _piece_end(held, 0)
            yield DocumentPiece(held[:cut], is_last=False)
            held = held[cut:]
    if blank:
        report.note(BLANK, name, 1)
        return
    report.pairs += 1
    yield DocumentPiece(held, is_last=True)


def _rows(name: str, report: ReadReport) -> Iterator[DocumentPiece]:
    for number, text in row_texts(Path(name)):
        if isinstance(text, UnusableError):
            report.note(str(text), name, number)
        else:
            report.pairs += 1
            yield from _cut(text)


def row_texts(path: Path) -> Iterator[tuple[int, str | UnusableError]]:
    """The number of each row of a .jsonl file or a table, with its text "text", or the problem with it."""
    rows: Iterator[Any] = read_table(path, ["text"]) if is_table(path) else raw_lines(path, _MAX_ROW_BYTES)
    for number, row in enumerate(rows, start=1):
        try:
            yield number, text_of_row(row)
        except UnusableError as problem:
            yield number, problem


def text_of_row(row: bytes | Mapping[str, Any] | None) -> str:
    """The text of a row of a .jsonl file or a table, or raise `UnusableError`; None stands for an overlong row."""
    if row is None:
        raise UnusableError(OVERLONG_ROW)
    try:
        text = (json.loads(row.decode("utf-8")) if isinstance(row, bytes) else row)["text"]
        text.encode()
    except UnicodeError:
        raise UnusableError(BAD_UTF8) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UnusableError(BAD_ROW) from None
    if "\0" in text:
        raise UnusableError(NUL)
    if not text or text.isspace():
        raise UnusableError(BLANK)
    return str(text)


def _cut(text: str) -> Iterator[DocumentPiece]:
    start = 0
    while len(text) - start >= 2 * PIECE:
        cut = _piece_end(text, start)
        yield DocumentPiece(text[start:cut], is_last=False)
        start = cut
    yield DocumentPiece(text[start:], is_last=True)


def _piece_end(text: str, start: int) -> int:
    """Where the piece that begins at `start` ends: after its last line break, otherwise before its last space."""
    end = start + PIECE
    if cut := text.rfind("\n", start, end) + 1:
        return cut
    space = text.rfind(" ", start + 1, end)
    return space if space > 0 and text[space - 1] != " " else end


def read_texts(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[str]]:
    """Yield the texts of a corpus; an unusable line is left out and counted. `reverse` has no meaning for them."""
    report.noun = "text"
    for files in corpus:
        name = single_file(files)
        for number, text in row_texts(Path(name)) if has_rows(Path(name)) else _lines(Path(name)):
            if isinstance(text, UnusableError):
                report.note(str(text), name, number)
            else:
                report.pairs += 1
                yield (text,)
    require_usable(corpus, report, "text")


def _lines(path: Path) -> Iterator[tuple[int, str | UnusableError]]:
    require_one_side(path)
    for number, raw in enumerate(raw_lines(path), start=1):
        try:
            yield number, decode(raw)
        except UnusableError as problem:
            yield number, problem


def single_file(files: tuple[str, ...]) -> str:
    if len(files) != 1:
        raise DataError(f"{' + '.join(files)}: text is read from single files, not from pairs of files")
    return files[0]


PAIRS = Reader(("src", "tgt"), read_pairs, has_sides=True, has_translations=True)
LINES = Reader(("text",), read_texts)
DOCUMENTS = Reader(("text",), read_documents, pieces=read_pieces)

DEFAULT_READER = "pairs"
READERS: Registry[Reader] = Registry("readers")
"""The readers of all features (features.py)."""

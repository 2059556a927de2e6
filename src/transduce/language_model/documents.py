"""Documents: running text with its line breaks, one in each row of a .jsonl file or a table, or a whole file.

A document may be of any length, so it is read in pieces.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from transduce.files.files import text_blocks
from transduce.files.pair_formats import UnusableError, has_rows, require_one_side
from transduce.files.pairs import Corpus, ReadReport, read_pairs, require_usable
from transduce.files.readers import BLANK, Reader, row_texts, single_file

PIECE = 1 << 20
"""Approximate number of characters of a piece."""


class DocumentPiece(NamedTuple):
    """A part of a document, which ends at a line break unless a line is longer than a piece."""

    text: str
    is_last: bool
    """Whether the document ends here."""


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
    blocks, beginning = text_blocks(Path(name)), ""
    for block in blocks:
        beginning += block
        if beginning.strip():
            report.pairs += 1
            yield from _cut(chain([beginning], blocks))
            return
    report.note(BLANK, name, 1)


def _rows(name: str, report: ReadReport) -> Iterator[DocumentPiece]:
    for number, text in row_texts(Path(name)):
        if isinstance(text, UnusableError):
            report.note(str(text), name, number)
        else:
            report.pairs += 1
            yield from _cut([text])


def _cut(blocks: Iterable[str]) -> Iterator[DocumentPiece]:
    held = ""  # a piece is held back until it is known whether another one follows
    for block in blocks:
        held, start = held + block, 0
        while len(held) - start >= 2 * PIECE:
            end = _piece_end(held, start)
            yield DocumentPiece(held[start:end], is_last=False)
            start = end
        held = held[start:]
    yield DocumentPiece(held, is_last=True)


def _piece_end(text: str, start: int) -> int:
    """Where the piece that begins at `start` ends: after its last line break, otherwise before its last space."""
    end = start + PIECE
    if cut := text.rfind("\n", start, end) + 1:
        return cut
    space = text.rfind(" ", start + 1, end)
    return space if space > 0 and text[space - 1] != " " else end


PROMPTS = Reader(("text",), read_pairs, has_prompts=True)
"""Pairs of a prompt and its answer."""

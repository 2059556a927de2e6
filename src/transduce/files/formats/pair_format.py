"""What a file format of sentence pairs provides, and the decoding that all formats share."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from transduce.files.files import MAX_LINE_BYTES, raw_lines

Pair = tuple[str, str]

# Problems that any format can have, as the read report words them.
BAD_UTF8 = "not UTF-8"
NUL = "with a NUL byte"
EMPTY = "with an empty side"
OVERLONG = f"longer than {MAX_LINE_BYTES:,} bytes"


@dataclass(frozen=True)
class PairFormat:
    """A file format that holds both sides of every pair; `transduce.files.formats` has the table of all formats."""

    suffixes: tuple[str, ...]
    """Endings of the file names, without the suffix of a compression."""
    read: Callable[[Path], Iterator[tuple[int, Pair | str]]]
    """Yields the line number of each entry, with its pair or, if it is unusable, the problem for the read report."""
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


def line_reader(parse: Callable[[bytes], Pair]) -> Callable[[Path], Iterator[tuple[int, Pair | str]]]:
    """Make the `read` function of a format with one pair on each line; `parse` may raise `UnusableError`."""

    def read(path: Path) -> Iterator[tuple[int, Pair | str]]:
        for number, raw in enumerate(raw_lines(path), start=1):
            try:
                yield number, OVERLONG if raw is None else parse(raw)
            except UnusableError as problem:
                yield number, str(problem)

    return read

"""File formats of sentence pairs. To add one, write a module with its `PairFormat` and add that to the table."""

from collections.abc import Callable
from pathlib import Path

from transduce.errors import DataError
from transduce.files.files import COMPRESSIONS
from transduce.files.formats.jsonl import JSONL
from transduce.files.formats.pair_format import PairFormat
from transduce.files.formats.po import PO
from transduce.files.formats.table import TABLE
from transduce.files.formats.tsv import TSV
from transduce.files.formats.xml_pairs import TMX, XLIFF

PAIR_FORMATS = (TSV, JSONL, TABLE, TMX, XLIFF, PO)


def format_of(path: Path, alternative: str = "") -> PairFormat:
    """The format of a file by its name; `alternative` ends the message of the error if there is none."""
    if path.is_dir():
        return TABLE
    for pair_format in PAIR_FORMATS:
        if format_suffix(path) in pair_format.suffixes:
            return pair_format
    *others, last = (suffix for pair_format in PAIR_FORMATS for suffix in pair_format.suffixes)
    raise DataError(f"{path}: cannot tell its format; end its name in {', '.join(others)} or {last}{alternative}")


def require_one_side(path: Path) -> None:
    """Raise an error if the name of a file tells that it has pairs or rows, and not lines of one language."""
    if any(format_suffix(path) in pair_format.suffixes for pair_format in PAIR_FORMATS):
        raise DataError(f"{path} is a file of pairs or rows; give text of one language, one sentence on each line")


def writer_of(path: Path) -> Callable[[str, str], str]:
    """The function that writes a pair in the format that a file's name tells."""
    if write := format_of(path).write:
        return write
    raise DataError(f"{path}: pairs of this format are only read; end its name in .tsv or .jsonl")


def format_suffix(path: Path) -> str:
    """The suffix that tells a file's format, in lower case: the last one that is not the suffix of a compression."""
    return (path.with_suffix("") if path.suffix in COMPRESSIONS else path).suffix.lower()

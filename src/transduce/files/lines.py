"""Texts, one on each line of a file, or in each row of a .jsonl file or a table with the field "text"."""

from collections.abc import Iterator
from pathlib import Path

from transduce.errors import DataError
from transduce.files.documents import row_texts
from transduce.files.files import raw_lines
from transduce.files.formats import format_suffix, require_one_side
from transduce.files.formats.jsonl import JSONL
from transduce.files.formats.pair_format import UnusableError, decode
from transduce.files.pairs import Corpus, ReadReport
from transduce.files.parquet import is_table


def read_texts(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[str]]:
    """Yield the texts of a corpus; an unusable line is left out and counted. `reverse` has no meaning for them."""
    report.noun = "text"
    for files in corpus:
        name = single_file(files)
        has_rows = format_suffix(Path(name)) in JSONL.suffixes or is_table(Path(name))
        if not has_rows:
            require_one_side(Path(name))
        for number, text in row_texts(Path(name)) if has_rows else _lines(Path(name)):
            if isinstance(text, UnusableError):
                report.note(str(text), name, number)
            else:
                report.pairs += 1
                yield (text,)
    if report.pairs == 0:
        names = ", ".join(name for (name,) in corpus)
        raise DataError("; ".join([f"{names}: no text", *report.lines()]))


def _lines(path: Path) -> Iterator[tuple[int, str | UnusableError]]:
    for number, raw in enumerate(raw_lines(path), start=1):
        try:
            yield number, decode(raw)
        except UnusableError as problem:
            yield number, problem


def single_file(files: tuple[str, ...]) -> str:
    """The file of an entry of a corpus that must be one file."""
    if len(files) != 1:
        raise DataError(f"{' + '.join(files)}: text is read from single files, not from pairs of files")
    return files[0]

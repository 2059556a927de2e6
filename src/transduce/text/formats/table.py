"""Tables of sentence pairs: Parquet and Arrow files, and Hugging Face datasets on disk.

A table has the columns "src" and "tgt", or a column "translation" with one text for each of two languages.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NoReturn

from transduce.errors import DataError
from transduce.text.formats.jsonl import pair_of_row
from transduce.text.formats.pair_format import Pair, PairFormat, UnusableError
from transduce.text.tables import TABLE_SUFFIXES, read_table, table_writer


def _read(path: Path) -> Iterator[tuple[int, Pair | str]]:
    for number, row in enumerate(read_table(path, ("src", "tgt", "translation")), start=1):
        try:
            yield number, pair_of_row(row)
        except UnusableError as problem:
            yield number, str(problem)


def _no_text(source: str, target: str) -> NoReturn:
    raise DataError("a table cannot be written row by row; end the name of the file in .tsv or .jsonl")


def _create(path: Path) -> AbstractContextManager[Callable[[str, str], None]]:
    @contextmanager
    def create() -> Iterator[Callable[[str, str], None]]:
        with table_writer(path) as add:
            yield lambda source, target: add({"src": source, "tgt": target})

    return create()


TABLE = PairFormat(TABLE_SUFFIXES, _read, _no_text, _create)

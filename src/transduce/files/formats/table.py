"""Tables of sentence pairs: Parquet and Arrow files, and Hugging Face datasets on disk.

A table has the columns "src" and "tgt", or a column "translation" with one text for each of two languages.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.files.formats.jsonl import RowPairs
from transduce.files.formats.pair_format import Pair, PairFormat, UnusableError
from transduce.files.parquet import TABLE_SUFFIXES, read_table, table_writer


def _read(path: Path) -> Iterator[tuple[int, Pair | str]]:
    rows = RowPairs(path)
    for number, row in enumerate(read_table(path, ("src", "tgt", "translation")), start=1):
        try:
            yield number, rows.pair(row)
        except UnusableError as problem:
            yield number, str(problem)


@contextmanager
def _create(path: Path) -> Iterator[Callable[[str, str], None]]:
    with table_writer(path) as add:
        yield lambda source, target: add({"src": source, "tgt": target})


TABLE = PairFormat(TABLE_SUFFIXES, _read, None, _create)

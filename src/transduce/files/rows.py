"""Texts to translate and the rows that they are in: lines of plain text, .jsonl files and tables."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import DataError
from transduce.files.files import raw_lines, read_lines, text_writer
from transduce.files.pair_formats import JSONL, format_suffix, has_rows
from transduce.files.parquet import Row, count_rows, is_table, read_table, table_writer
from transduce.files.texts import require_text

SOURCE_COLUMNS = ("src", "text")
"""The columns that texts are read from, unless another one is named."""
TARGET_COLUMN = "tgt"
"""The column that a translation is written to; a value that is there is replaced."""


def read_source_rows(path: Path, column: str | None = None) -> Iterator[tuple[str, Row]]:
    """Yield every text with its row; a line of plain text is a row with the column "src".

    A row without a text is an error, because no row may be left out.
    """
    if not has_rows(path):
        for line in read_lines(path):
            yield line, {SOURCE_COLUMNS[0]: line}
        return
    for number, row in enumerate(read_table(path) if is_table(path) else _json_rows(path), start=1):
        name = column or next((name for name in SOURCE_COLUMNS if name in row), SOURCE_COLUMNS[0])
        text = row.get(name)
        if not isinstance(text, str):
            if name in row:
                raise DataError(f"{path}, row {number}: the column {name} has no text")
            raise DataError(
                f"{path}, row {number}: there is no column {name} (it has {', '.join(row)}); name the text's column "
                "src, or choose it with translate --column"
            )
        yield text, row


def count_source_rows(path: Path) -> int:
    return count_rows(path) if is_table(path) else sum(1 for _ in raw_lines(path))


@contextmanager
def row_writer(path: Path, schema: object = None) -> Iterator[Callable[[Row], None]]:
    """Give a function that writes one row, in the format that the name tells; plain text has the translations only.

    `schema` has the types of the columns of a table. The file appears, complete, when the block ends without an error.
    """
    if is_table(path):
        with table_writer(path, schema) as add:
            yield add
        return
    line = json_line if format_suffix(path) in JSONL.suffixes else _plain_line
    with text_writer(path) as write:
        yield lambda row: write(line(row))


def json_line(row: Row) -> str:
    try:
        return json.dumps(row, ensure_ascii=False) + "\n"
    except TypeError as error:
        raise DataError(f"a row has a value that JSON does not have ({error}); write .parquet instead") from None


def _plain_line(row: Row) -> str:
    return str(row[TARGET_COLUMN]).replace("\n", " ") + "\n"


def _json_rows(path: Path) -> Iterator[Row]:
    for number, raw in enumerate(raw_lines(path), start=1):
        try:
            if raw is not None and not raw.strip():
                continue
            row = None if raw is None else json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            problem = "longer than the longest line" if raw is None else "not a JSON object"
            raise DataError(f"{path}, line {number}: {problem}; a .jsonl file has one object on each line")
        if raw and b"\\u" in raw:  # only an escape can be half of a character
            require_text(json.dumps(row, ensure_ascii=False), f"{path}, line {number}")
        yield row

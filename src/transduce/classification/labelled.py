"""Texts with a label."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transduce.errors import DataError
from transduce.files.documents import single_file
from transduce.files.files import raw_lines
from transduce.files.pair_formats import JSONL, NO_TAB, TSV, UnusableError, decode, format_suffix
from transduce.files.pairs import Corpus, ReadReport
from transduce.files.parquet import is_table, read_table
from transduce.files.readers import Reader, require_usable

BAD_ROW = 'not a row with a text "text" and a "label"'
_TEXT_NAMES = ("text", "sentence")
_LABEL_NAME = "label"

Columns = tuple[int, int]
"""The columns of text and label."""


def read_labelled(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the texts of a corpus and their labels; an unusable line is left out and counted.

    A .tsv file has text, tab, label on each line, or the columns that its first line names: text (or sentence) and
    label. A .jsonl file or a table has rows with
    the fields text (or sentence) and label. `reverse` has no meaning for them.
    """
    report.noun = "text"
    for files in corpus:
        name = single_file(files)
        suffix = format_suffix(Path(name))
        table = is_table(Path(name))
        if suffix not in (*TSV.suffixes, *JSONL.suffixes) and not table:
            raise DataError(f"{name}: labelled texts are .tsv (text, tab, label) or .jsonl (text and label)")
        rows = _table_rows(Path(name)) if table else _rows(Path(name), is_json=suffix in JSONL.suffixes)
        for number, row in rows:
            if isinstance(row, str):
                report.note(row, name, number)
            else:
                report.pairs += 1
                yield row
    require_usable(corpus, report, "labelled text")


def _rows(path: Path, *, is_json: bool) -> Iterator[tuple[int, tuple[str, str] | str]]:
    """The line number of each row, with its text and label, or the problem with it."""
    parse: Callable[[bytes | None, Columns], tuple[str, str]] = _parse_json if is_json else _parse_tsv
    columns = (0, 1)
    for number, raw in enumerate(raw_lines(path), start=1):
        if number == 1 and raw is not None and not is_json and (named := _named_columns(raw)):
            columns = named
            continue
        try:
            yield number, parse(raw, columns)
        except UnusableError as problem:
            yield number, str(problem)


def _named_columns(raw: bytes) -> Columns | None:
    """The columns of text and label, if the line has the names of columns."""
    names = [name.strip().lower() for name in raw.decode("utf-8", "replace").split("\t")]
    text = next((names.index(name) for name in _TEXT_NAMES if name in names), None)
    return (text, names.index(_LABEL_NAME)) if text is not None and _LABEL_NAME in names else None


def _parse_tsv(raw: bytes | None, columns: Columns) -> tuple[str, str]:
    decode(raw)
    assert raw is not None
    values = raw.split(b"\t")
    if len(values) <= max(columns):
        raise UnusableError(NO_TAB)
    text, label = (decode(values[column]).strip() for column in columns)
    return text, label


def _parse_json(raw: bytes | None, _: Columns) -> tuple[str, str]:
    row = decode(raw)
    try:
        return _text_and_label(json.loads(row))
    except (ValueError, RecursionError):
        raise UnusableError(BAD_ROW) from None


def _text_and_label(row: Any) -> tuple[str, str]:
    try:
        text = next(row[name] for name in _TEXT_NAMES if name in row)
        label = row[_LABEL_NAME]
        if not isinstance(label, str | int):
            raise TypeError
        return decode(text.encode()).strip(), decode(" ".join(str(label).split()).encode())
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration):
        raise UnusableError(BAD_ROW) from None


def _table_rows(path: Path) -> Iterator[tuple[int, tuple[str, str] | str]]:
    for number, row in enumerate(read_table(path, (*_TEXT_NAMES, _LABEL_NAME)), start=1):
        try:
            yield number, _text_and_label(row)
        except UnusableError as problem:
            yield number, str(problem)


LABELLED = Reader(("text", "label"), read_labelled, labels=True)

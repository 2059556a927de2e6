"""Files that a command writes line by line, and can continue."""

import fcntl
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from transduce.cli.inputs import STANDARD_INPUT, STANDARD_OUTPUT, Input
from transduce.cli.request_record import RequestRecord
from transduce.errors import ConfigError
from transduce.files.document_formats import BINARY_SUFFIXES, MARKUP_SUFFIXES, TEXT, document_format
from transduce.files.files import COMPRESSIONS
from transduce.files.pair_formats import JSONL, TSV, format_suffix
from transduce.files.parquet import TABLE_SUFFIXES, Row, is_table, schema_of, table_writer, with_text_column
from transduce.files.rows import TARGET_COLUMN, json_line

_PACKAGES = ("docx", "odt", "pdf")
"""Formats of documents that are not text."""


def refuse_compression(path: Path) -> None:
    """Raise an error if the name of an output promises a compressed file: lines are written as plain text."""
    if path.suffix in COMPRESSIONS:
        raise ConfigError(f"{path}: the output is written without compression; name it {path.with_suffix('').name}")


def refuse_overwriting(
    out: Path, inputs: Iterable[Input] = (), *, force: bool, resume: bool = False, resumable: bool = False
) -> None:
    """Raise an error if the file to write is one of those to read, or if it exists and is not empty.

    The latter is the rule of every command that writes a file, because the file may have been edited: `force`
    overwrites it, and `resume` continues it, if the command can (`resumable`).
    """
    paths = (item for item in inputs if isinstance(item, Path) and item != STANDARD_INPUT)
    if out.exists() and any(path.exists() and out.samefile(path) for path in paths):
        raise ConfigError(f"--out would overwrite {out}, which is being read; name another file")
    if not force and not resume and out.is_file() and out.stat().st_size:
        choices = ["continue it with --resume", "name another file"] if resumable else ["name another file"]
        raise ConfigError(f"{out} exists already; {', '.join(choices)}, or give --force to overwrite it")


def require_line_output(path: Path, *, rows: bool = False, markup: bool = False) -> None:
    """Raise an error if lines of text cannot be written to this path, or if its name promises another format.

    With `rows`, it may also have rows with named columns; with `markup`, the lines may be those of a file with markup.
    """
    refuse_compression(path)
    suffix, named = path.suffix.lower(), document_format(path)
    is_markup = suffix in MARKUP_SUFFIXES or suffix in TSV.suffixes or named not in (None, TEXT, *_PACKAGES)
    is_rows = suffix in (*JSONL.suffixes, *TABLE_SUFFIXES)
    if suffix in BINARY_SUFFIXES or named in _PACKAGES or (is_markup and not markup) or (is_rows and not rows):
        alternative = ", or in .jsonl to have sources and translations" if rows else ""
        raise ConfigError(f"--out {path}: the output is lines of text; end its name in .txt{alternative}")
    if rows:
        require_folder_of(path)
    else:
        require_file_output(path)


def require_file_output(path: Path) -> None:
    """Raise an error if a file cannot have this path, before the work that it would lose."""
    if path == STANDARD_OUTPUT:
        raise ConfigError("--out -: this command does not write to standard output; name a file")
    if path.is_dir():
        raise ConfigError(f"--out {path} is a folder; name a file")
    require_folder_of(path)


def require_folder_of(path: Path) -> None:
    """Raise an error if the folder of an output does not exist, before the work that it would lose."""
    if not path.parent.is_dir():
        raise ConfigError(f"--out {path}: there is no folder {path.parent}; make it first")


@contextmanager
def line_output(path: Path, *, resume: bool, request: Mapping[str, str]) -> Iterator[tuple[TextIO, int]]:
    """Open a file to write lines to, locked against a second process; gives it and the number of its complete lines.

    To resume, an incomplete last line is removed, and the request must be the same; otherwise, the file is
    emptied. If nothing was written to a new file because of an error, there is no file.
    """
    record, is_new = RequestRecord(path, request), not path.exists()
    with _removed_if_empty(path, record, is_new), path.open("a", encoding="utf-8") as file:
        complete = 0
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # pipes and devices can be shared
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"{path} is being written by another process; wait, or name another file") from None
            end = 0
            if resume:
                complete, end = _complete_lines(path)
            if complete:
                record.require_same()
            file.truncate(end)
            record.write()
        yield file, complete
    record.remove()


@contextmanager
def _removed_if_empty(path: Path, record: RequestRecord, is_new: bool) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if is_new and path.is_file() and not path.stat().st_size:
            path.unlink()
            record.remove()
        raise


class LineOutput:
    """The output of `transduce translate`: lines of text on standard output, or in a file."""

    def __init__(self, file: TextIO | None = None, done: int | None = 0, *, as_rows: bool = False) -> None:
        self._file = file or sys.stdout
        self.as_rows = as_rows
        """Whether rows are written, with all columns of the input."""
        self.done = done
        """Number of complete lines that are there already; None if the output is complete."""

    def write(self, line: str) -> None:
        """Write a line as it is."""
        self._file.write(line)

    def add(self, row: Row, translation: str) -> None:
        """Write the translation of a row; as a line of text, it has no line breaks."""
        if self.as_rows:
            self.write(json_line({**row, TARGET_COLUMN: translation}))
        else:
            self.write(translation.replace("\n", " ") + "\n")

    def flush(self) -> None:
        """Make the lines so far visible to others."""
        self._file.flush()


class _TableOutput(LineOutput):
    def __init__(self, add: Callable[[Row], None]) -> None:
        super().__init__(as_rows=True)
        self._add = add

    def add(self, row: Row, translation: str) -> None:
        self._add({**row, TARGET_COLUMN: translation})

    def flush(self) -> None:
        """Do nothing: a table appears when it is complete."""


@contextmanager
def open_output(
    path: Path, inputs: Sequence[Input], *, resume: bool, records: bool, request: Mapping[str, str]
) -> Iterator[LineOutput]:
    """Open the file that translations are written to; `records` are lines that the caller writes.

    To resume, the lines of a file are continued. A table appears only when it is complete, so one that exists is.
    """
    datasets = [isinstance(item, Path) and item.is_dir() for item in inputs]
    if path.suffix.lower() not in TABLE_SUFFIXES and not (all(datasets) and not path.suffix):
        if path.is_dir():
            raise ConfigError(f"--out {path} is a folder; name a file")
        with line_output(path, resume=resume, request=request) as (file, done):
            if done and _has_records(path) != records:
                begun = "without --jsonl" if records else "with --jsonl"
                raise ConfigError(f"{path} was begun {begun}; resume it the same way, or name another --out")
            yield LineOutput(file, done, as_rows=not records and format_suffix(path) in JSONL.suffixes)
        return
    if records:
        raise ConfigError(f"--jsonl writes lines, and {path} is a table; name a .jsonl file")
    if path.exists() and resume:
        yield LineOutput(done=None)
        return
    if path.is_dir():
        raise ConfigError(f"{path} exists; name another folder")
    with table_writer(path, _schema(inputs)) as add:
        yield _TableOutput(add)


def _schema(inputs: Sequence[Input]) -> Any:
    """The columns of the tables that are read, with that of the translation; None if they are not all the same."""
    if not all(isinstance(item, Path) and is_table(item) for item in inputs):
        return None
    first, *others = (schema_of(Path(item)) for item in inputs)
    return with_text_column(first, TARGET_COLUMN) if all(schema.equals(first) for schema in others) else None


def _has_records(path: Path) -> bool:
    """Whether the lines of a file are those of `transduce translate --jsonl`, judged by the first."""
    with path.open("rb") as file:
        try:
            record = json.loads(file.readline())
        except (ValueError, RecursionError):
            return False
    return isinstance(record, dict) and {"source", "source_tokens", "translations"} <= record.keys()


def _complete_lines(path: Path) -> tuple[int, int]:
    """The number of complete lines of a file, and where they end."""
    lines = end = 0
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                lines, end = lines + 1, end + len(line)
    return lines, end

"""The input of `transduce translate` and `parse`: files, or text given as an argument."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from transduce.errors import ConfigError, DataError
from transduce.files.pair_formats import TSV, format_suffix
from transduce.files.parquet import Row
from transduce.files.rows import SOURCE_COLUMNS, count_source_rows, read_source_rows
from transduce.files.texts import is_unicode

Input = Path | str
"""A file, or a text."""

STANDARD_INPUT = STANDARD_OUTPUT = Path("-")


def as_input(word: str, command: str = "translate") -> Input:
    """A file if it exists, text if it does not look like the name of a file, otherwise an error: probably a typo.

    A name has no spaces, and a slash or a suffix with letters.
    """
    path = Path(word)
    if path == STANDARD_INPUT or os.path.exists(word):  # Path.exists raises if a text is too long for a file name
        return path
    if any(map(str.isspace, word)) or not ("/" in word or any(map(str.isalpha, path.suffix))):
        return require_utf8(word)
    hint = f"echo {shlex.quote(word)} | transduce {command}"
    raise DataError(f"{word}: no such file; if it is text to {command}, pipe it in: {hint}")


def lines_of(inputs: Sequence[Input]) -> Iterator[str]:
    """Every line of every input, in order; of rows, their texts."""
    for path in (item for item in inputs if isinstance(item, Path) and format_suffix(item) in TSV.suffixes):
        raise ConfigError(f"{path} has columns; give one of them as text, a text on each line (cut -f1)")
    return (text for text, _ in rows_of(inputs, None))


def rows_of(inputs: Sequence[Input], column: str | None) -> Iterator[tuple[str, Row]]:
    """Every text of every input, in order, with its row."""
    for item in inputs:
        if isinstance(item, Path):
            yield from read_source_rows(item, column)
        else:
            yield item, {SOURCE_COLUMNS[0]: item}


def count_lines(inputs: Sequence[Input]) -> int | None:
    """The number of lines or rows of all inputs; None if one of them can be read only once."""
    if any(isinstance(item, Path) and not (item.is_file() or item.is_dir()) for item in inputs):
        return None
    return sum(count_source_rows(item) if isinstance(item, Path) else 1 for item in inputs)


def shard_of(inputs: Sequence[Input], shard: str) -> range:
    """The lines, counted from 0, of a shard "I/N": the inputs are cut into N consecutive parts of equal size."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", shard)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise ConfigError(f"--shard {shard}: give the number of the shard and of all shards, from 1/8 to 8/8")
    total = count_lines(inputs)
    if total is None:
        raise ConfigError("--shard needs files to read: the lines are counted before they are divided")
    return range(total * (number - 1) // count, total * number // count)


def require_utf8(text: str) -> str:
    """The text; an error if it has bytes that are not UTF-8."""
    if not is_unicode(text):
        raise DataError(f"{text!a} is not UTF-8; set the terminal's encoding to UTF-8")
    return text

"""The input of `transduce translate` and `parse`: files, or text given as an argument."""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from transduce.errors import DataError
from transduce.text.files import read_lines

Input = Path | str
"""A file, or a text."""

STANDARD_INPUT = Path("-")


def as_input(word: str, command: str = "translate") -> Input:
    """A file if it exists; text if it has spaces, or neither a slash nor a suffix; otherwise an error (a typo)."""
    path = Path(word)
    if path == STANDARD_INPUT or os.path.exists(word):  # Path.exists raises if a text is too long for a file name
        return path
    if any(map(str.isspace, word)) or not ("/" in word or path.suffix.strip(".")):
        return require_utf8(word)
    hint = f"echo {shlex.quote(word)} | transduce {command}"
    raise DataError(f"{word}: no such file; if it is text to {command}, pipe it in: {hint}")


def lines_of(inputs: Sequence[Input]) -> Iterator[str]:
    """Every line of every input, in order; a text is one line."""
    for one in inputs:
        if isinstance(one, Path):
            yield from read_lines(one)
        else:
            yield one


def require_utf8(text: str) -> str:
    """The text; an error if it has bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{text!a} is not UTF-8; set the terminal's encoding to UTF-8") from None
    return text

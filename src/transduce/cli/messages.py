"""Messages of commands on stderr."""

import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from transduce.files.texts import CLEAR_LINE, one_line

_YELLOW, _RED, _END = "\x1b[33m", "\x1b[31m", "\x1b[0m"
_announced = False
"""Whether the last line of the terminal says what is being done."""


def log(line: str, *, error: bool = False) -> None:
    """Print a line to stderr; in a terminal, a warning is yellow and an error is red."""
    text = wrapped(f"transduce: {one_line(line)}", stream=sys.stderr)
    colour = _RED if error else _YELLOW if line.startswith("warning: ") else ""
    if colour and sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        text = f"{colour}{text}{_END}"
    print(f"{CLEAR_LINE if _announced else ''}{text}", file=sys.stderr)


@contextmanager
def announce(what: str) -> Iterator[None]:
    """Say in a terminal what is being done inside the block, which takes seconds; the line is removed in the end."""
    global _announced
    if not sys.stderr.isatty():
        yield
        return
    print(f"{what} ...", end="", file=sys.stderr, flush=True)
    _announced = True
    try:
        yield
    finally:
        _announced = False
        print(CLEAR_LINE, end="", file=sys.stderr, flush=True)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and Ctrl-C end the process immediately while torch is imported; nothing is open yet.

    An exception that a signal handler raises during an import may be swallowed by the imported module.
    """
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def warn_of_cut_texts(count: int, longest: int) -> None:
    """Print a warning if texts were longer than what the model reads."""
    if count:
        texts = "1 text was" if count == 1 else f"{count:,} texts were"
        log(f"warning: {texts} cut to {longest:,} tokens, the most that the model reads")


def wrapped(line: str, indent: int = 0, stream: TextIO | None = None) -> str:
    """The line, broken between words if the stream (stdout) is a terminal that is too narrow; a pipe gets one line."""
    width = shutil.get_terminal_size().columns
    if not (stream or sys.stdout).isatty() or len(line) <= width or line.startswith("|"):  # a row of a table
        return line
    return textwrap.fill(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)

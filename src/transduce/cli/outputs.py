"""Files that a command writes line by line, and can continue."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from transduce.errors import ConfigError


@contextmanager
def line_output(path: Path, *, resume: bool) -> Iterator[tuple[TextIO, int]]:
    """Open a file to write lines to, locked against a second process; gives it and the number of its complete lines.

    To resume, an incomplete last line is removed; otherwise, the file is emptied.
    """
    with path.open("a", encoding="utf-8") as file:
        complete = 0
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # pipes and devices can be shared
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"{path} is being written by another process; wait, or name another file") from None
            end = 0
            if resume:
                complete, end = _complete_lines(path)
            file.truncate(end)
        yield file, complete


def _complete_lines(path: Path) -> tuple[int, int]:
    """The number of complete lines of a file, and where they end."""
    lines = end = 0
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                lines, end = lines + 1, end + len(line)
    return lines, end

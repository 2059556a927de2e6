"""Commands in a terminal."""

import fcntl
import os
import pty
import struct
import termios
from pathlib import Path
from typing import Any

COLUMNS, ROWS = 80, 24


def in_a_terminal(transduce: Any, *words: str | Path, cwd: Path, typed: bytes = b"") -> str:
    """What a command prints to a terminal of 80 columns in which a person types."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = transduce.background(*words, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, typed)
    printed = read_all(ours)
    os.close(ours)
    assert process.wait() == 0
    return printed.decode().replace("\r\n", "\n")


def read_all(terminal: int) -> bytes:
    """What is printed until the other end of a terminal is closed."""
    parts = []
    try:
        while part := os.read(terminal, 1 << 16):
            parts.append(part)
    except OSError:  # the command has ended
        pass
    return b"".join(parts)

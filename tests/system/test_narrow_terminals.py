"""Output in a terminal of 80 columns: nothing is cut off, and no line is broken inside a word."""

import fcntl
import os
import pty
import re
import struct
import termios
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from transduce.training.display import Display

COLUMNS = 80


def output_in_a_terminal(transduce: Any, *words: str | Path, cwd: Path) -> str:
    """What a command prints to a terminal, without control sequences."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    process = transduce.fresh(*words, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 1 << 16):
            parts.append(part)
    except OSError:  # the command has ended
        pass
    os.close(ours)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(parts).decode()).replace("\r\n", "\n")


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["cache", "--help"]])
def test_help_fits(transduce: Any, tmp_path: Path, words: list[str]) -> None:
    text = output_in_a_terminal(transduce, *words, cwd=tmp_path)
    assert max(map(len, text.splitlines())) <= COLUMNS


def test_the_facts_of_a_model_are_broken_between_words(transduce: Any, trained: Any) -> None:
    piped = transduce("info", "-m", "run", cwd=trained.folder).out
    assert max(map(len, piped.splitlines())) > COLUMNS  # the names of the files
    shown = output_in_a_terminal(transduce, "info", "-m", "run", cwd=trained.folder)
    assert shown.split() == piped.split()
    assert all(len(line) <= COLUMNS or len(line.split()) == 1 for line in shown.splitlines())


def test_progress_fits_with_large_numbers() -> None:
    console = Console(force_terminal=True, width=COLUMNS, height=24, highlight=False)
    with console.capture() as capture:
        display = Display(console)
        with display.begin(0, 300_000):
            display.set_end(300_000, may_be_earlier=True)
            record = {"loss": 3.1234, "perplexity": 12.34, "tokens_per_second": 123_456, "learning_rate": 7e-4}
            display.show({"step": 123_456, **record, "memory_gb": 23.4, "skipped": 0})
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capture.get())
    assert re.search(r"≤\d+:\d\d:\d\d step 123,456/300,000 loss 3.123 ppl 12.34 123,456 tok/s lr 7.00e-04", text)
    assert all(len(line) <= COLUMNS for line in re.split(r"[\r\n]", text))

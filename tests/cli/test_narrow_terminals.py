"""Output in a terminal of 80 columns: nothing is cut off, and no line is broken inside a word."""

import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from terminals import COLUMNS, ROWS, in_a_terminal

from transduce.training.display import Display


def without_control_sequences(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["cache", "--help"]])
def test_help_fits(transduce: Any, tmp_path: Path, words: list[str]) -> None:
    text = without_control_sequences(in_a_terminal(transduce, *words, cwd=tmp_path))
    assert max(map(len, text.splitlines())) <= COLUMNS
    assert not re.search(r"\w-$", text, re.MULTILINE)  # no word is broken at its hyphen


def test_doctor_fits_on_a_screen(transduce: Any, tmp_path: Path) -> None:
    text = without_control_sequences(in_a_terminal(transduce, "doctor", cwd=tmp_path))
    assert len(text.splitlines()) < ROWS


def test_messages_are_broken_between_words(transduce: Any, tmp_path: Path) -> None:
    text = in_a_terminal(transduce, "translate", "Where is the station?", cwd=tmp_path)
    lines = without_control_sequences(text).splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert "for another target language, use --to (de, en, fr)" in " ".join(lines)


def test_the_facts_of_a_model_are_broken_between_words(transduce: Any, trained: Any) -> None:
    piped = transduce("info", "-m", "run", cwd=trained.folder).out
    assert max(map(len, piped.splitlines())) > COLUMNS  # the names of the files
    shown = without_control_sequences(in_a_terminal(transduce, "info", "-m", "run", cwd=trained.folder))
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
    text = without_control_sequences(capture.get())
    assert re.search(r"≤\d+:\d\d:\d\d step 123,456/300,000 loss 3.123 ppl 12.34 123,456 tok/s lr 7.00e-04", text)
    assert all(len(line) <= COLUMNS for line in re.split(r"[\r\n]", text))

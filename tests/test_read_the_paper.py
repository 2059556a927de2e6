"""The guide "Read the paper with the code" names only files, tests and commands that exist."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from transduce.cli.main import app
from transduce.paper.section import ORDER

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "guides" / "read-the-paper.md").read_text(encoding="utf-8")
ROWS = [line for line in GUIDE.splitlines() if line.startswith("|") and "/test_" in line]


def names(pattern: str) -> list[str]:
    return sorted(set(re.findall(pattern, GUIDE)))


@pytest.mark.parametrize("name", names(r"`((?:nn|models|paper|inspect|text|data|training|runs|search)/\w+\.py)`"))
def test_every_file_exists(name: str) -> None:
    assert (ROOT / "src" / "transduce" / name).is_file()


@pytest.mark.parametrize("name", names(r"`(tests/[\w/]+\.py(?:::\w+)?)`"))
def test_every_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    source = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^def {function or 'test_'}", source, re.MULTILINE)


@pytest.mark.parametrize("command", [code for code in names(r"`(transduce [^`]+)`") if "|" not in code])
def test_every_command_is_valid(command: str) -> None:
    words, inner = shlex.split(command)[1:], get_command(app)
    while hasattr(inner, "commands"):
        inner = inner.commands[words.pop(0)]
    assert inner.make_context("transduce", words)


def test_every_row_names_a_file_and_a_test() -> None:
    assert len(ROWS) > 20
    for row in ROWS:
        assert re.search(r"`\w+/\w+\.py`", row), row
        assert re.search(r"`tests/", row), row


def test_every_section_of_the_paper_is_there() -> None:
    for section in ("3.1", "3.2.1", "3.2.2", "3.2.3", "3.3", "3.4", "3.5", "5.1", "5.3", "5.4", "6.1", "6.2", "6.3"):
        assert re.search(rf"^\| {re.escape(section)} \|", GUIDE, re.MULTILINE), section
    for table in ORDER:
        assert table.endswith("scores") or f"Table {table[-1]}" in GUIDE

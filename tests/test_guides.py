"""The outputs with which guides begin: their commands print them."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
BLOCKS = {
    path.stem: re.findall(r"^```console\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for path in sorted(GUIDES.glob("*.md"))
}


@pytest.mark.parametrize("guide", [name for name, blocks in BLOCKS.items() if blocks])
def test_the_commands_print_what_the_guide_shows(guide: str, transduce: Any, tmp_path: Path) -> None:
    """A `cat` of a file that does not exist yet shows what the file contains."""
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(BLOCKS[guide]), re.MULTILINE):
        program, *words = shlex.split(command)
        if program == "cat" and not (tmp_path / words[0]).exists():
            (tmp_path / words[0]).write_text(expected, encoding="utf-8")
        elif program == "transduce":
            outcome = transduce(*words, cwd=tmp_path)
            assert (outcome.code, outcome.out) == (0, expected), (command, outcome.err)
        else:
            assert program == "cat"
            assert "".join((tmp_path / word).read_text(encoding="utf-8") for word in words) == expected

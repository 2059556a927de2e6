"""The rule of every command that writes a file: one that exists is overwritten only with --force."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from transduce.cli.main import app
from transduce.cli.outputs import refuse_overwriting
from transduce.errors import ConfigError


def commands(command: Any) -> Iterator[Any]:
    for inner in getattr(command, "commands", {}).values():
        yield inner
        yield from commands(inner)


def test_every_command_that_writes_a_file_has_force() -> None:
    found = set()
    for command in commands(get_command(app)):
        options = {name: parameter for parameter in command.params for name in parameter.opts}
        if "--out" in options and not re.match("(Model f|F)older ", options["--out"].help):
            found.add(command.name)
            assert "--force" in options, command.name
    assert {"translate", "backtranslate", "evaluate", "inspect", "compare", "parse", "embed", "check"} <= found


def test_a_file_with_content_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    refuse_overwriting(path, force=False)
    path.touch()
    refuse_overwriting(path, force=False)
    path.write_text("edited")
    with pytest.raises(ConfigError) as raised:
        refuse_overwriting(path, force=False)
    assert str(raised.value) == f"{path} exists already; name another file, or give --force to overwrite it"
    with pytest.raises(ConfigError, match="exists already; continue it with --resume, name another file, or give"):
        refuse_overwriting(path, force=False, resumable=True)
    refuse_overwriting(path, force=True)
    refuse_overwriting(path, force=False, resume=True, resumable=True)
    refuse_overwriting(Path(os.devnull), force=False)


def test_a_file_that_is_read_is_never_overwritten(tmp_path: Path) -> None:
    (path := tmp_path / "a.txt").write_text("source")
    (link := tmp_path / "b.txt").symlink_to(path)
    for force in (False, True):
        with pytest.raises(ConfigError, match="which is being read"):
            refuse_overwriting(link, ["some text", path], force=force)

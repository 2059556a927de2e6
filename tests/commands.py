"""Shared by tests of the command line: its error message, and the content of a run."""

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any

from transduce.fast.native.library import load_library


def complaint(outcome: Any) -> str:
    """The error message of a failed command; checks that it is a single line and the exit code is 2."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    *before, last = outcome.err.splitlines()
    assert last.startswith("transduce: ")
    assert not [line for line in before if not line.startswith("data: ")]
    return last.removeprefix("transduce: ")


def content(folder: Path) -> dict[str, bytes]:
    """The content of every file of a folder, except for the lock, which holds a process id."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def in_cache(folder: Path) -> str:
    """Code that makes a command use this cache, with the library of engine native that the tests have compiled."""
    return f"import os; os.environ['TRANSDUCE_CACHE'] = {str(folder)!r}\n" + without_compiling()


def without_compiling() -> str:
    """Code that makes a command copy the library of engine native from the cache of the tests: compiling takes 9 s."""
    library = load_library()
    if library is None:
        return ""
    return f"""
import pathlib, shutil
from transduce.fast.native import library
library._compile = lambda compiler, path: pathlib.Path(shutil.copy({library._name!r}, path))
"""


def metrics(run: Path) -> list[dict[str, Any]]:
    """The measurements of a run."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def copied(trained: Any, tmp_path: Path) -> Path:
    """A copy of the trained run that a test may change."""
    return shutil.copytree(trained.run, tmp_path / "run", symlinks=True)


def copied_until(run: Path, to: Path, step: int) -> Path:
    """A copy of a run as it was after a checkpoint."""
    shutil.copytree(run, to, symlinks=True)
    shutil.rmtree(to / "model")
    for path in (to / "checkpoints").glob("step-*"):
        if int(path.name[5:]) > step:
            shutil.rmtree(path)
    return to


def sets(**values: object) -> list[str]:
    """Command-line options for settings of [train]."""
    return [word for name, value in values.items() for word in ("--set", f"train.{name}={value}")]


def inspected_header(page: Path) -> dict[str, Any]:
    """The header of the inspection in a self-contained page."""
    found = re.search(r'<script type="text/plain" id="inspection">([^<]*)<', page.read_text(encoding="utf-8"))
    assert found
    data = base64.b64decode(found[1])
    header: dict[str, Any] = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    return header

"""What tests of the command line share: how a command refuses, and what a run holds."""

import json
import shutil
from pathlib import Path
from typing import Any


def complaint(outcome: Any) -> str:
    """The one line with which a command refuses, checked to be no more than that."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    *before, last = outcome.err.splitlines()
    assert last.startswith("transduce: ")
    assert not [line for line in before if not line.startswith("data: ")]
    return last.removeprefix("transduce: ")


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, but for the lock, which names the last process."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def copied(trained: Any, tmp_path: Path) -> Path:
    """A copy of the trained run, to be changed."""
    return shutil.copytree(trained.run, tmp_path / "run", symlinks=True)


def sets(**values: object) -> list[str]:
    """Further settings of [train]."""
    return [word for name, value in values.items() for word in ("--set", f"train.{name}={value}")]

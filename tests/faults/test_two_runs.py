"""Two runs in one folder: the second is refused, and told who the first is."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY
from trouble import slowed, train_undisturbed, wait_for

from transduce.errors import RunError
from transduce.training.api import train


def test_a_second_run_in_a_folder_is_refused_while_the_first_lives(transduce: Any, tmp_path: Path) -> None:
    small = train_undisturbed(transduce, tmp_path, **{"train.steps": 4})
    ready, run = tmp_path / "ready", tmp_path / "run"
    code = slowed("transduce.training.compute:Compute", "__call__", 3600, ready)
    transduce.begin(*small.words, "--out", run, cwd=tmp_path, before=code)
    first = int(wait_for(ready))
    files = {name: tmp_path / f"train.{name}" for name in ("src", "tgt")}
    settings = TINY | {"train.steps": 4, "train.save_every": 4, "train.keep": 3, "train.average": 3}
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with pytest.raises(RunError, match=f"is being trained already, by process {first}$"):
        train(run, **files, preset="tiny", settings=settings)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    os.kill(first, signal.SIGKILL)
    assert transduce.end().code == -9
    assert train(run, **files, preset="tiny", settings=settings).finished  # a dead process keeps nobody out

"""Two runs in one folder: the second fails with an error that names the process of the first."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fault_injection import pause_first_call, train_reference_run, wait_for
from toy_run import TINY

from transduce.errors import RunError
from transduce.training.api import train


def test_a_second_run_in_a_folder_fails_while_the_first_is_running(transduce: Any, tmp_path: Path) -> None:
    small = train_reference_run(transduce, tmp_path, **{"train.steps": 4})
    ready, run = tmp_path / "ready", tmp_path / "run"
    code = pause_first_call("transduce.training.learner:Compute", "__call__", ready)
    transduce.begin(*small.arguments, "--out", run, cwd=tmp_path, before=code)
    first = int(wait_for(ready))
    files = {name: tmp_path / f"train.{name}" for name in ("src", "tgt")}
    settings = TINY | {"train.steps": 4, "train.save_every": 4, "train.keep": 3, "train.average": 3}
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with pytest.raises(RunError, match=f"is already being trained by process {first}$"):
        train(run, **files, preset="tiny", settings=settings)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    os.kill(first, signal.SIGKILL)
    assert transduce.end().code == -9
    assert train(run, **files, preset="tiny", settings=settings).finished  # a dead process does not hold the lock

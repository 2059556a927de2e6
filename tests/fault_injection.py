"""Shared by the fault tests: the number of repetitions, a small run, and Python code that injects faults into it."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import PATIENCE
from toy_run import TINY, as_sets, make_toy_pairs, write_lines

from transduce.training.checkpoint import find_damage, list_checkpoints

FULL = os.environ.get("FAULTS") == "full"
"""Set by `make faults`: every fault is repeated as often as the documentation states, instead of a few times."""


def repetitions(short: int, full: int) -> int:
    """Number of repetitions of a fault."""
    return full if FULL else short


@dataclass(frozen=True)
class SmallRun:
    """A training command that takes two seconds, and the run it makes without faults."""

    folder: Path
    arguments: list[str]
    seconds: float
    """Duration without faults."""

    @property
    def reference(self) -> Path:
        """The run without faults."""
        return self.folder / "reference"


def train_reference_run(transduce: Any, folder: Path, **changes: object) -> SmallRun:
    """Train the small run from start to end, without faults."""
    arguments = ["train"]
    for name, count in (("train", 300), ("valid", 12)):
        for side, lines in zip(("src", "tgt"), zip(*make_toy_pairs(count, seed=count), strict=True), strict=True):
            path = write_lines(folder / f"{name}.{side}", lines)
            arguments += [f"--{side}" if name == "train" else f"--valid-{side}", str(path)]
    settings = TINY | {"train.steps": 40, "train.save_every": 4, "train.keep": 3, "train.average": 3}
    arguments += ["--preset", "tiny", *as_sets(settings | changes)]
    transduce("--help", cwd=folder)  # starts the server that runs the commands
    start = time.monotonic()
    outcome = transduce(*arguments, "--out", "reference", cwd=folder)
    assert outcome.code == 0, outcome.err
    return SmallRun(folder, arguments, time.monotonic() - start)


def assert_same_result(run: Path, expected: Path) -> None:
    """Check that last checkpoint and finished model of both runs are bit-identical."""
    last = list_checkpoints(expected / "checkpoints")[-1].name
    for name in (f"checkpoints/{last}/model", f"checkpoints/{last}/optimizer", "model/model"):
        path = f"{name}.safetensors"
        assert (run / path).read_bytes() == (expected / path).read_bytes(), path


def assert_intact(run: Path) -> None:
    """Check that every checkpoint of the run is intact."""
    assert {path.name: find_damage(path) for path in list_checkpoints(run / "checkpoints") if find_damage(path)} == {}


def kill_after(seconds: float) -> str:
    """Python code that kills its process with SIGKILL after this many seconds."""
    return f"""
import os, signal, threading
threading.Timer({seconds}, os.kill, (os.getpid(), signal.SIGKILL)).start()
"""


def pause_first_call(owner: str, name: str, ready: Path) -> str:
    """Python code that pauses in the first call of a function, until the test deletes the file `ready`.

    The file has the id of the process.
    """
    module, _, inner = owner.partition(":")
    return f"""
import os, time
import {module} as owner
for part in {inner.split(".") if inner else []!r}:
    owner = getattr(owner, part)
real, calls = getattr(owner, {name!r}), 0
def paused(*arguments, **options):
    global calls
    calls += 1
    if calls == 1:
        with open({str(ready) + ".tmp"!r}, "w") as file:
            file.write(str(os.getpid()))
        os.rename({str(ready) + ".tmp"!r}, {str(ready)!r})
        while os.path.exists({str(ready)!r}):
            time.sleep(0.01)
    return real(*arguments, **options)
setattr(owner, {name!r}, paused)
"""


def wait_for(path: Path, timeout: float = PATIENCE) -> str:
    """Wait until a file exists; returns its content."""
    limit = time.monotonic() + timeout
    while not path.exists():
        assert time.monotonic() < limit, f"{path} was not written"
        time.sleep(0.01)
    return path.read_text()

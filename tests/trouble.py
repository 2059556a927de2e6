"""What the fault programs share: how often each is tried, a small run to be hurt, and the Python that hurts it."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import TINY, as_sets, make_toy_pairs, write_lines

from transduce.runs.checkpoint import find_damage, list_checkpoints

FULL = os.environ.get("FAULTS") == "full"
"""`make faults` sets it: every fault as often as is promised, instead of a few times."""


def times(short: int, full: int) -> int:
    """How often to try a fault."""
    return full if FULL else short


@dataclass(frozen=True)
class SmallRun:
    """A command that trains in two seconds, and what it leaves when nothing goes wrong."""

    folder: Path
    words: list[str]
    seconds: float
    """What it takes, undisturbed."""

    @property
    def whole(self) -> Path:
        """The undisturbed run."""
        return self.folder / "whole"


def train_undisturbed(transduce: Any, folder: Path, **changes: object) -> SmallRun:
    """The small run, once from start to end."""
    words = ["train"]
    for name, count in (("train", 300), ("valid", 12)):
        for side, lines in zip(("src", "tgt"), zip(*make_toy_pairs(count, seed=count), strict=True), strict=True):
            path = write_lines(folder / f"{name}.{side}", lines)
            words += [f"--{side}" if name == "train" else f"--valid-{side}", str(path)]
    settings = TINY | {"train.steps": 40, "train.save_every": 4, "train.keep": 3, "train.average": 3}
    words += ["--preset", "tiny", *as_sets(settings | changes)]
    transduce("--help", cwd=folder)  # so that the server behind the command line is there
    began = time.monotonic()
    outcome = transduce(*words, "--out", "whole", cwd=folder)
    assert outcome.code == 0, outcome.err
    return SmallRun(folder, words, time.monotonic() - began)


def assert_same_end(found: Path, expected: Path) -> None:
    """The last checkpoint and the finished model are those of the other run, bit for bit."""
    last = list_checkpoints(expected / "checkpoints")[-1].name
    for name in (f"checkpoints/{last}/model", f"checkpoints/{last}/optimizer", "model/model"):
        path = f"{name}.safetensors"
        assert (found / path).read_bytes() == (expected / path).read_bytes(), path


def assert_intact(run: Path) -> None:
    """Whatever looks like a checkpoint is one."""
    assert {path.name: find_damage(path) for path in list_checkpoints(run / "checkpoints") if find_damage(path)} == {}


def kill_after(seconds: float) -> str:
    """Python that kills its process, as `kill -9` does, after so long."""
    return f"""
import os, signal, threading
threading.Timer({seconds}, os.kill, (os.getpid(), signal.SIGKILL)).start()
"""


def slowed(owner: str, name: str, seconds: float, ready: Path) -> str:
    """Python that lets the first call of a function say so, with its process's number in a file, and take so long."""
    module, _, inner = owner.partition(":")
    return f"""
import os, time
import {module} as owner
for part in {inner.split(".") if inner else []!r}:
    owner = getattr(owner, part)
real = getattr(owner, {name!r})
def slow(*arguments, **options):
    if not os.path.exists({str(ready)!r}):
        with open({str(ready) + ".tmp"!r}, "w") as file:
            file.write(str(os.getpid()))
        os.rename({str(ready) + ".tmp"!r}, {str(ready)!r})
        time.sleep({seconds})
    return real(*arguments, **options)
setattr(owner, {name!r}, slow)
"""


def wait_for(path: Path, patience: float = 60) -> str:
    """The content of a file, as soon as it is there."""
    until = time.monotonic() + patience
    while not path.exists():
        assert time.monotonic() < until, f"{path} never came"
        time.sleep(0.01)
    return path.read_text()

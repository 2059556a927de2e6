"""Hostile run folders: the commands that read them work, or refuse them with one line."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from fault_injection import FULL
from toy_run import TrainedRun


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def write(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


ESCAPES = json.dumps({"kind": "valid\x1b[2J\n", "step": "\ud800\x1b]0;x\x07", "loss": "\u202e"}).encode() + b"\n"
CHANGES: dict[str, Callable[[Path], object]] = {
    "endless": endless,
    "a FIFO": fifo,
    "a folder": folder,
    "bytes": write(bytes(range(256)) * 40),
    "escapes": write(ESCAPES),
    "nested": write(b'{"kind":' + b"[" * 100_000),
    "wrong types": write(b'{"kind": "train", "step": [1], "loss": {}}\n[1]\nnull\n{"kind": 7, "step": NaN}\n'),
    "huge numbers": write(b'{"kind": "train", "step": 1' + b"0" * 4000 + b', "loss": 1e999, "seconds": -1e308}\n'),
}


@pytest.mark.parametrize("change", CHANGES if FULL else ["a FIFO", "bytes", "nested", "wrong types"])
def test_a_damaged_run_is_read_or_refused_with_one_line(
    transduce: CommandLine, trained: TrainedRun, tmp_path: Path, change: str
) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))"
    problems: dict[str, Any] = {}
    for name in ("metrics.jsonl", "config.toml"):
        run = Path(shutil.copytree(trained.run, tmp_path / name, symlinks=True))
        CHANGES[change](run / name)
        for words in (["compare", run, trained.run], [*trained.words, "--out", run]):
            outcome = transduce(*words, cwd=tmp_path, before=limit)
            lines = outcome.err.splitlines()
            shown = outcome.out + outcome.err
            if outcome.code not in (0, 2) or "internal error" in shown or "\x1b" in shown:
                problems[f"{name}: {words[0]}"] = (outcome.code, outcome.out[-300:], outcome.err[-300:])
            elif outcome.code == 2 and sum(line.startswith("transduce: ") for line in lines) != 1:
                problems[f"{name}: {words[0]}"] = (outcome.code, outcome.err[-500:])
    assert problems == {}

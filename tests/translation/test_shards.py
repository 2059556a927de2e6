"""`transduce translate --shard I/N`: the outputs of all shards are the output of one process."""

from pathlib import Path
from typing import Any

import pytest
from commands import complaint
from toy_run import make_toy_pairs, write_lines

LONG = " ".join(["babo dego."] * 200)  # translated in parts
KILL = """
import os, signal
from transduce.cli.progress import ProgressBar
lines = 0
def flush_due(self):
    global lines
    lines += 1
    if lines == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return True
ProgressBar.flush_due = flush_due
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two files of 29 lines, with empty and long ones; the shards cut both."""
    lines = [source for source, _ in make_toy_pairs(29, seed=9)]
    lines[3], lines[8], lines[20] = "", LONG, "  "
    folder = tmp_path_factory.mktemp("texts")
    return [write_lines(folder / "a.txt", lines[:10]), write_lines(folder / "b.txt", lines[10:])]


def test_the_outputs_of_the_shards_are_the_output_without_shards(
    transduce: Any, trained: Any, texts: list[Path]
) -> None:
    words = ["translate", "-m", trained.run, "--jsonl", *texts]
    whole = transduce(*words, cwd=trained.folder)
    assert whole.out.count("\n") == 29
    parts = [transduce(*words, "--shard", f"{number}/4", cwd=trained.folder) for number in range(1, 5)]
    assert [part.out.count("\n") for part in parts] == [7, 7, 7, 8]
    assert "".join(part.out for part in parts) == whole.out
    refused = transduce(*words, "--shard", "2/4", "--long", "refuse", cwd=trained.folder)
    assert complaint(refused).startswith("line 9 has ")  # counted over the whole input


def test_a_shard_that_was_killed_is_resumed(transduce: Any, trained: Any, texts: list[Path], tmp_path: Path) -> None:
    words = ["translate", "-m", trained.run, "--engine", "native", *texts]
    expected = transduce(*words, cwd=tmp_path).out.splitlines(keepends=True)[14:]
    words += ["--shard", "2/2", "--out", "out.txt", "--resume"]
    killed = transduce(*words, cwd=tmp_path, before=KILL)
    assert killed.code == -9
    out = tmp_path / "out.txt"
    assert out.read_text() == "".join(expected[:5])
    with out.open("a") as file:
        file.write("an incomplete li")
    resumed = transduce(*words, cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    assert "out.txt has 5 lines already; continuing with line 6" in resumed.err
    assert out.read_text() == "".join(expected)


def test_more_shards_than_lines_leave_some_empty(transduce: Any, trained: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "in.txt", ["ba bo", "de"])
    words = ["translate", "-m", trained.run, "in.txt", "--out"]
    for number in (1, 2, 3):
        assert transduce(*words, f"out-{number}.txt", "--shard", f"{number}/3", cwd=tmp_path).code == 0
    assert [(tmp_path / f"out-{number}.txt").read_text().count("\n") for number in (1, 2, 3)] == [0, 1, 1]


@pytest.mark.parametrize("shard", ["0/3", "4/3", "one/two"])
def test_a_shard_that_does_not_exist_is_refused(transduce: Any, trained: Any, texts: list[Path], shard: str) -> None:
    outcome = transduce("translate", "-m", trained.run, texts[0], f"--shard={shard}", cwd=trained.folder)
    assert complaint(outcome) == f"--shard {shard}: give the number of the shard and of all shards, from 1/8 to 8/8"


def test_standard_input_has_no_shards(transduce: Any, trained: Any) -> None:
    outcome = transduce("translate", "-m", trained.run, "--shard", "1/2", stdin="ba\n", cwd=trained.folder)
    assert "--shard needs files to read" in complaint(outcome)

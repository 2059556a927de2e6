"""SIGKILL at any moment loses only the steps since the last checkpoint."""

import random
from pathlib import Path
from typing import Any

import pytest
from commands import in_cache
from fault_injection import SmallRun, assert_intact, assert_same_result, kill_after, repetitions, train_reference_run

from transduce.training.checkpoint import newest_step

SAVE_EVERY = repetitions(2, 4)


@pytest.fixture(scope="module")
def small(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    steps = {"train.steps": repetitions(12, 40), "train.save_every": SAVE_EVERY}
    return train_reference_run(transduce, tmp_path_factory.mktemp("small"), **steps)


def test_a_run_killed_at_random_moments_ends_in_the_same_weights(transduce: Any, small: SmallRun) -> None:
    rng, kills = random.Random(5), 0
    while kills < repetitions(4, 100):
        out = small.folder / f"killed-{kills}"
        # With its own cache, data preparation is killed too.
        own_cache = in_cache(small.folder / f"cache-{kills}")
        code = -9
        while code == -9:
            before = newest_step(out / "checkpoints")
            moment = rng.uniform(0, small.seconds) if kills < repetitions(4, 100) else 1000.0
            outcome = transduce(*small.arguments, "--out", out, cwd=small.folder, before=own_cache + kill_after(moment))
            code = outcome.code
            kills += code == -9
            assert newest_step(out / "checkpoints") >= before
            assert_intact(out)
        assert code == 0, outcome.err
        assert_same_result(out, small.reference)


# Kills during the writing of a checkpoint: `sys.settrace` counts the executed lines, and one of them kills the process.

DIE_WHILE_SAVING = """
import os, signal, sys
import transduce.training.milestones as milestones
from transduce import disk
from transduce.models import folder, weight_tensors
from transduce.training import checkpoint
files = {{module.__file__ for module in (disk, folder, weight_tensors, checkpoint)}}
save, lines, saves = milestones.save_checkpoint, 0, 0
def count(frame, event, _):
    global lines
    if frame.f_code.co_filename not in files:
        return None
    if event == "line":
        lines += 1
        if lines == {last_line}:
            os.kill(os.getpid(), signal.SIGKILL)
    return count
def traced(*arguments):
    global saves
    saves += 1
    if saves != {which}:
        return save(*arguments)
    sys.settrace(count)
    result = save(*arguments)
    sys.settrace(None)
    with open({counted!r}, "w") as file:
        file.write(str(lines))
    return result
milestones.save_checkpoint = traced
"""


def test_a_run_killed_while_it_writes_a_checkpoint_keeps_the_previous_one(
    transduce: Any, small: SmallRun, tmp_path: Path
) -> None:
    counted = tmp_path / "lines"
    code = DIE_WHILE_SAVING.format(last_line=0, which=1, counted=str(counted))
    assert transduce(*small.arguments, "--out", tmp_path / "counted", cwd=small.folder, before=code).code == 0
    lines = int(counted.read_text())
    assert lines > 50
    out, kills = tmp_path / "killed", repetitions(4, 50)
    for kill in range(kills):
        # Spread evenly over the lines. The first save of each attempt succeeds, so that the run advances.
        last_line = 1 + kill * (lines - 1) // max(1, kills - 1)
        folder = out.with_name(f"killed-{kill // 8}")
        before = newest_step(folder / "checkpoints")
        code = DIE_WHILE_SAVING.format(last_line=last_line, which=2, counted=str(counted))
        outcome = transduce(*small.arguments, "--out", folder, cwd=small.folder, before=code)
        assert outcome.code == -9, outcome.err
        assert before == 0 or f"resuming from {folder}/checkpoints/step-{before}" in outcome.err
        assert newest_step(folder / "checkpoints") >= before + SAVE_EVERY
        assert_intact(folder)
    for folder in {out.with_name(f"killed-{kill // 8}") for kill in range(kills)}:
        outcome = transduce(*small.arguments, "--out", folder, cwd=small.folder)
        assert outcome.code == 0, outcome.err
        assert_same_result(folder, small.reference)

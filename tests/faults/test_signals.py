"""SIGTERM and Ctrl-C in every phase: the run saves and ends within a step and 10 s; the same command resumes it."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import PATIENCE
from fault_injection import (
    FULL,
    SmallRun,
    assert_intact,
    assert_same_result,
    pause_first_call,
    train_reference_run,
    wait_for,
)

INTERRUPTED, COMPLETED = True, False
"""Whether a signal ends the work of a phase at once, or after it is completed."""
PHASES = {
    "start-up": ("transduce.training.resolve", "prepare", INTERRUPTED),
    "loading": ("transduce.training.run_folder:RunFolder", "resume", INTERRUPTED),
    "training": ("transduce.training.steps:Steps", "gradients", COMPLETED),
    "validation": ("transduce.translation.task:Validation", "_sums", INTERRUPTED),
    "translating": ("transduce.translation.translator:Translator", "stream", INTERRUPTED),
    "saving": ("transduce.training.checkpoint", "save_model", COMPLETED),
    "pruning": ("transduce.training.milestones", "prune", COMPLETED),
    "ending": ("transduce.training.run_folder", "save_model", COMPLETED),
}


@pytest.fixture(scope="module")
def small(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return train_reference_run(transduce, tmp_path_factory.mktemp("small"), **{"train.steps": 8})


SIGNALS = [signal.SIGTERM, signal.SIGINT]
CASES = [(phase, number) for turn, phase in enumerate(PHASES) for number in (SIGNALS if FULL else [SIGNALS[turn % 2]])]


@pytest.mark.parametrize(("phase", "number"), CASES, ids=[f"{number.name} during {phase}" for phase, number in CASES])
def test_a_signal_saves_and_ends_the_run(
    transduce: Any, small: SmallRun, tmp_path: Path, phase: str, number: signal.Signals
) -> None:
    owner, name, interrupted = PHASES[phase]
    ready = tmp_path / "ready"
    command = (*small.arguments, "--out", tmp_path / "run")
    transduce.begin(*command, cwd=small.folder, before=pause_first_call(owner, name, ready))
    process = int(wait_for(ready))
    sent = time.monotonic()
    os.kill(process, number)
    if not interrupted:
        ready.unlink()
    outcome = transduce.end()
    if FULL:  # on an idle machine
        assert time.monotonic() - sent < 10
    # A run that is about to finish may finish.
    assert outcome.code in ((0, 128 + number) if phase == "ending" else (128 + number,)), outcome.err
    assert "Traceback" not in outcome.err
    assert_intact(tmp_path / "run")
    if phase in ("training", "validation", "translating", "saving", "pruning"):
        assert "stopped at step" in outcome.err

    resumed = transduce(*command, cwd=small.folder)
    assert resumed.code == 0, resumed.err
    assert_same_result(tmp_path / "run", small.reference)


@pytest.mark.skipif(not FULL, reason="starts new interpreters; run by `make faults`")
def test_a_signal_at_any_moment_of_a_new_interpreter_is_harmless(
    transduce: Any, small: SmallRun, tmp_path: Path
) -> None:
    rng = random.Random(3)
    for attempt in range(20):
        run, number = tmp_path / f"run-{attempt}", rng.choice([signal.SIGTERM, signal.SIGINT])
        command = (*small.arguments, "--out", run)
        process = transduce.fresh(*command, cwd=small.folder, stderr=subprocess.PIPE)
        time.sleep(rng.uniform(0, 6))
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
        # While Python itself starts, a signal ends the process without our handler.
        assert process.returncode in (0, 128 + number, -number), process.returncode
        assert_intact(run)
        assert transduce(*command, cwd=small.folder).code == 0
        assert_same_result(run, small.reference)

"""SIGTERM and Ctrl-C, whatever a run is doing: saved and gone within a step and 10 s; the same command goes on."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from trouble import FULL, SmallRun, assert_intact, assert_same_end, slowed, train_undisturbed, wait_for

HOURS, STEP = 3600.0, 1.0
"""Work that a signal must break off, and work that is waited for."""
PHASES = {
    "start-up": ("transduce.training.loop", "prepare", HOURS),
    "loading": ("transduce.training.loop", "resume", HOURS),
    "training": ("transduce.training.compute:Compute", "__call__", STEP),
    "validation": ("transduce.tasks.translate:Validation", "_sums", HOURS),
    "translating": ("transduce.translator:Translator", "translate", HOURS),
    "saving": ("transduce.runs.checkpoint", "save_model", STEP),
    "pruning": ("transduce.training.milestones", "prune", STEP),
    "ending": ("transduce.runs.run_folder", "save_model", STEP),
}


@pytest.fixture(scope="module")
def small(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return train_undisturbed(transduce, tmp_path_factory.mktemp("small"), **{"train.steps": 8})


SIGNALS = [signal.SIGTERM, signal.SIGINT]
CASES = [(phase, number) for turn, phase in enumerate(PHASES) for number in (SIGNALS if FULL else [SIGNALS[turn % 2]])]


@pytest.mark.parametrize(("phase", "number"), CASES, ids=[f"{number.name} during {phase}" for phase, number in CASES])
def test_a_signal_saves_and_ends_the_run(
    transduce: Any, small: SmallRun, tmp_path: Path, phase: str, number: signal.Signals
) -> None:
    owner, name, seconds = PHASES[phase]
    ready = tmp_path / "ready"
    command = (*small.words, "--out", tmp_path / "run")
    transduce.begin(*command, cwd=small.folder, before=slowed(owner, name, seconds, ready))
    process = int(wait_for(ready))
    sent = time.monotonic()
    os.kill(process, number)
    outcome = transduce.end()
    assert time.monotonic() - sent < STEP + 10
    # What is all but finished may finish.
    assert outcome.code in ((0, 128 + number) if phase == "ending" else (128 + number,)), outcome.err
    assert "Traceback" not in outcome.err
    assert_intact(tmp_path / "run")
    if phase in ("training", "validation", "translating", "saving", "pruning"):
        assert "stopped at step" in outcome.err

    resumed = transduce(*command, cwd=small.folder)
    assert resumed.code == 0, resumed.err
    assert_same_end(tmp_path / "run", small.whole)


@pytest.mark.skipif(not FULL, reason="takes new interpreters; part of `make faults`")
def test_a_signal_at_any_moment_of_a_new_interpreter_is_no_harm(
    transduce: Any, small: SmallRun, tmp_path: Path
) -> None:
    chance = random.Random(3)
    for attempt in range(20):
        run, number = tmp_path / f"run-{attempt}", chance.choice([signal.SIGTERM, signal.SIGINT])
        command = (*small.words, "--out", run)
        process = transduce.fresh(*command, cwd=small.folder, stderr=subprocess.PIPE)
        time.sleep(chance.uniform(0, 6))
        process.send_signal(number)
        process.communicate(timeout=20)
        # The first moments of an interpreter belong to Python, where a signal ends it by itself.
        assert process.returncode in (0, 128 + number, -number), process.returncode
        assert_intact(run)
        assert transduce(*command, cwd=small.folder).code == 0
        assert_same_end(run, small.whole)

"""The estimate after the first steps, and the advice if other work competes for the cores."""

import io
import os
import subprocess
import sys

import pytest
import torch
from rich.console import Console

from transduce.training import display as display_module
from transduce.training import display as first_steps
from transduce.training.display import Display, FirstSteps


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now, self.waited = 100.0, 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (first_steps, display_module):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(first_steps, "_waiting_seconds", lambda: clock.waited)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    return clock


def output_of_steps(clock: Clock, seconds: float, waiting: float, log_every: int = 50, steps: int = 10) -> list[str]:
    """The lines printed in these first steps of 105; the first one takes a minute."""
    stream = io.StringIO()
    display = Display(Console(file=stream, soft_wrap=True))
    display.begin(0, 105)
    measured = FirstSteps(display, log_every)
    for step in range(1, steps + 1):
        clock.now += seconds if step > 1 else 60
        clock.waited += seconds * waiting
        measured.after_step(step, torch.ones(()))
    return stream.getvalue().splitlines()


def test_the_time_left_is_shown_after_five_steps_and_the_first_does_not_count(clock: Clock) -> None:
    assert output_of_steps(clock, seconds=3, waiting=0) == ["step 5/105  0:05:00 left"]
    assert output_of_steps(clock, seconds=3, waiting=0, steps=4) == []
    assert output_of_steps(clock, seconds=3, waiting=0, log_every=5) == []


def test_fewer_threads_are_advised_only_if_threads_wait_for_a_core(clock: Clock) -> None:
    assert len(output_of_steps(clock, seconds=1, waiting=0.1)) == 1
    *_, advice = output_of_steps(clock, seconds=1, waiting=0.8)
    assert "on average 0.8 of 2 threads wait for one; train.threads=1 may be faster" in advice


def test_threads_that_wait_for_each_other_give_up_the_core_early() -> None:
    """The variable must be set before torch, which loads the OpenMP runtime, is imported."""
    code = (
        "import sys, os; import transduce.training; assert 'torch' not in sys.modules; "
        "print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"
    )

    def variables(**given: str) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
        return subprocess.run([sys.executable, "-c", code], env=clean | given, text=True, stdout=-1, check=True).stdout

    assert variables() == "10000 None\n"
    assert variables(OMP_WAIT_POLICY="ACTIVE") == "None ACTIVE\n"
    assert variables(GOMP_SPINCOUNT="7") == "7 None\n"

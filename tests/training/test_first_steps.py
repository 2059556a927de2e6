"""The estimate after the first steps, and the advice if other work competes for the cores."""

import io
import os
import subprocess
import sys

import pytest
import torch
from rich.console import Console

from transduce.training import display as display_module
from transduce.training.display import Display


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now, self.waited = 100.0, 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(display_module, "time", clock)
    monkeypatch.setattr(display_module, "_waiting_seconds", lambda: clock.waited)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    return clock


def output_of_steps(clock: Clock, seconds: float, waiting: float, log_every: int = 50, steps: int = 10) -> list[str]:
    """The lines printed in these first steps of 105; the first one takes a minute."""
    stream = io.StringIO()
    display = Display(Console(file=stream, soft_wrap=True))
    display.begin(0, 105)
    for step in range(1, steps + 1):
        clock.now += seconds if step > 1 else 60
        clock.waited += seconds * waiting
        display.step_done(step, 100, torch.ones(()), log_every)
    return stream.getvalue().splitlines()


def test_the_time_left_is_shown_after_five_steps_and_the_first_does_not_count(clock: Clock) -> None:
    assert output_of_steps(clock, seconds=3, waiting=0) == ["step 5/105  0:05:00 left"]
    assert output_of_steps(clock, seconds=3, waiting=0, steps=4) == []
    assert output_of_steps(clock, seconds=3, waiting=0, log_every=5) == []


def test_a_log_has_a_line_every_minute_even_if_steps_are_slow(clock: Clock) -> None:
    lines = output_of_steps(clock, seconds=30, waiting=0, steps=12)
    assert lines == [f"step {step}/105  {left} left" for step, left in ((4, "0:50:30"), (5, "0:50:00"))] + [
        f"step {step}/105  0:{(105 - step) // 2}:{(105 - step) % 2 * 30:02} left" for step in (8, 11)
    ]


def test_a_terminal_shows_step_speed_and_time_left_from_the_first_step_on(clock: Clock) -> None:
    display = Display(Console(file=io.StringIO(), force_terminal=True, width=80))
    with display.begin(0, 105):
        clock.now += 7
        assert display.status() == "starting, 0:00:07"
        display.step_done(1, 100, torch.ones(()), 50)
        assert display.status() == "-:--:-- step 1/105"
        clock.now += 20
        display.step_done(2, 100, torch.ones(()), 50)
        assert display.status() == "0:34:20 step 2/105 5 tok/s"
        clock.now += 20
        assert display.status().startswith("1:08:40 step 2/105")  # without another step, the estimate grows


def test_samples_are_cut_to_one_line() -> None:
    console = Console(force_terminal=True, width=40, highlight=False)
    with console.capture() as capture:
        Display(console).show_samples([{"source": "a", "output": "und " * 200, "reference": "b\nc"}])
    lines = capture.get().splitlines()
    assert len(lines) == 3
    assert len(lines[1]) <= 40
    assert lines[1].endswith("…")


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

"""The end of a run: train.minutes and train.patience, with and without a cooldown."""

from itertools import pairwise
from typing import Any

import pytest

from transduce.errors import ConfigError
from transduce.training.checkpoint import Progress
from transduce.training.recipe import load_recipe
from transduce.training.schedule import Ending, learning_rate
from transduce.training.train_config import TrainConfig


def ending(progress: Progress, **settings: Any) -> Ending:
    table = {"data": {"train": [["a", "b"]], "valid": [["c", "d"]]}, "train": {"warmup": 4, "steps": 1000} | settings}
    return Ending(load_recipe(None, "tiny", table, []), progress, lambda line: None)


def run(progress: Progress, seconds_per_step: float = 1.0, until: int = 1000, **settings: Any) -> list[float]:
    """Make the steps of a run, each of which takes this time; returns their learning rates."""
    end, rates = ending(progress, **settings), []
    while not end.reached() and progress.step < until:
        rates.append(end.rate(progress.step + 1))
        progress.step += 1
        progress.seconds += seconds_per_step
        end.after_step(progress.seconds)
    return rates


def test_the_given_learning_rate_is_the_peak_of_the_papers_schedule() -> None:
    rates = run(Progress(), steps=20, learning_rate=0.003)
    assert max(rates) == pytest.approx(rates[3]) == pytest.approx(0.003)
    assert rates[0] == pytest.approx(0.003 / 4)
    assert rates[15] == pytest.approx(0.003 / 2)  # step 16 is 4 times the warmup
    assert rates == pytest.approx([0.003 * r / learning_rate(4, 128, 4) for r in run(Progress(), steps=20)])


def test_a_learning_rate_excludes_a_scale() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        TrainConfig(learning_rate=0.001, learning_rate_scale=0.5)


def test_without_a_cooldown_a_run_ends_when_its_time_is_over() -> None:
    progress = Progress()
    rates = run(progress, minutes=1)
    assert (progress.step, progress.last_step) == (60, 60)
    assert rates[-1] == learning_rate(60, 128, 4)


def test_the_cooldown_fits_into_the_time_and_ends_at_zero() -> None:
    progress = Progress()
    rates = run(progress, minutes=1, cooldown=20)
    assert progress.step == 60
    factors = [rate / learning_rate(step, 128, 4) for step, rate in enumerate(rates, start=1)]
    assert factors == pytest.approx([1.0] * 40 + [n / 21 for n in range(20, 0, -1)])


def test_a_cooldown_longer_than_the_time_begins_as_soon_as_the_speed_is_known() -> None:
    progress = Progress()
    rates = run(progress, minutes=1, cooldown=500)
    assert 58 <= progress.step <= 60
    assert rates[-1] < learning_rate(progress.step, 128, 4) / 50


@pytest.mark.parametrize("later", [0.25, 4.0])
def test_a_cooldown_is_corrected_if_the_speed_changes(later: float) -> None:
    end = ending(progress := Progress(), minutes=10, steps=5000, cooldown=500)
    factors = []
    while not end.reached():
        factors.append(end.rate(progress.step + 1) / learning_rate(progress.step + 1, 128, 4))
        progress.step += 1
        progress.seconds += 1.0 if progress.step < 200 else later
        end.after_step(progress.seconds)
    assert progress.seconds == pytest.approx(600, rel=0.05)
    assert max(before - after for before, after in pairwise(factors)) < 0.02
    assert factors[-1] < 0.02


def test_time_that_runs_out_during_the_cooldown_of_the_last_steps_makes_it_steeper_without_a_jump() -> None:
    progress = Progress(step=80, seconds=20.0)
    rates = run(progress, minutes=1, steps=130, cooldown=60)  # begins at step 70, and 120 is the last that fits
    factors = [rate / learning_rate(step, 128, 4) for step, rate in enumerate(rates, start=81)]
    assert progress.step == 120
    assert all(before > after for before, after in pairwise(factors))
    assert max(before - after for before, after in pairwise(factors)) < 0.025
    assert factors[-1] < 0.025


def test_steps_that_end_before_the_time_are_not_affected() -> None:
    assert run(Progress(), minutes=10, steps=50, cooldown=20) == run(Progress(), steps=50, cooldown=20)


def test_a_resumed_run_keeps_the_decision_even_if_it_is_faster() -> None:
    undisturbed = run(Progress(), minutes=1, cooldown=20)
    progress = Progress()
    first = run(progress, minutes=1, cooldown=20, until=45)
    again = Progress(**vars(progress))
    assert first + run(again, seconds_per_step=0.1, minutes=1, cooldown=20) == undisturbed


def test_more_minutes_continue_a_run_that_has_ended() -> None:
    progress = Progress()
    run(progress, minutes=1)
    assert ending(progress, minutes=1).reached()
    assert not ending(progress, minutes=2).reached()
    run(progress, minutes=2)
    assert progress.step == 120
    assert ending(progress, minutes=1).reached()


def test_patience_ends_a_run_after_validations_without_a_better_score() -> None:
    progress = Progress(step=30)
    end = ending(progress, patience=3)
    end.after_validation(2)
    assert not end.reached()
    assert end.may_be_earlier
    end.after_validation(3)
    assert end.reached()
    assert end.reason == "train.patience=3"
    assert not ending(progress, patience=4).reached()


def test_patience_begins_the_cooldown_and_the_decision_stays() -> None:
    progress = Progress(step=30)
    end = ending(progress, patience=3, cooldown=10)
    end.after_validation(3)
    assert (end.last_step, end.reached(), end.may_be_earlier) == (40, False, False)
    end.after_validation(0)
    assert end.last_step == 40
    assert [end.rate(step) / learning_rate(step, 128, 4) for step in (31, 40)] == pytest.approx([10 / 11, 1 / 11])


def test_patience_without_validation_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.patience counts validations"):
        load_recipe(None, "tiny", {"train": {"patience": 3}}, [])

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


def run(
    progress: Progress,
    seconds_per_step: float = 1.0,
    until: int = 1000,
    seconds_per_sentence: float = 0.0,
    **settings: Any,
) -> list[float]:
    """Make the steps of a run, each of which takes this time; returns their learning rates."""
    end, rates = ending(progress, **settings), []
    while not end.reached() and progress.step < until:
        rates.append(end.rate(progress.step + 1))
        progress.step += 1
        progress.seconds += seconds_per_step
        progress.elapsed = progress.seconds
        end.after_step(progress.seconds, progress.elapsed)
        if end.can_adapt():
            end.adapt(seconds_per_sentence, 0.0)
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
    rates = run(progress, minutes=1, cooldown=0)
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
        end.after_step(progress.seconds, progress.seconds)
        if end.can_adapt():
            end.adapt(0.0, 0.0)
    assert progress.seconds == pytest.approx(600, rel=0.05)
    assert max(before - after for before, after in pairwise(factors)) < 0.02
    assert factors[-1] < 0.02


def test_time_that_runs_out_during_the_cooldown_of_the_last_steps_makes_it_steeper_without_a_jump() -> None:
    progress = Progress(step=80, seconds=20.0, elapsed=20.0)
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
    run(progress, minutes=1, cooldown=0)
    assert ending(progress, minutes=1, cooldown=0).reached()
    assert not ending(progress, minutes=2, cooldown=0).reached()
    run(progress, minutes=2, cooldown=0)
    assert progress.step == 120
    assert ending(progress, minutes=1, cooldown=0).reached()


def test_patience_ends_a_run_after_validations_without_a_better_score() -> None:
    progress = Progress(step=30)
    end = ending(progress, patience=3, cooldown=0)
    end.after_validation(2)
    assert not end.reached()
    assert end.may_be_earlier
    end.after_validation(3)
    assert end.reached()
    assert end.reason == "train.patience=3"
    assert not ending(progress, patience=4, cooldown=0).reached()


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


def test_settings_that_are_not_set_are_adapted_to_the_time() -> None:
    table = {"data": {"train": [["a", "b"]], "valid": [["c", "d"]]}, "train": {"minutes": 8}}
    recipe, progress, lines = load_recipe(None, "small", table, []), Progress(), []
    assert recipe.train.adapts == ("warmup", "cooldown", "save_every", "valid_sentences")
    end = Ending(recipe, progress, lines.append)
    rates = []
    while not end.reached():
        rates.append(end.rate(progress.step + 1))
        progress.step += 1
        progress.seconds += 10
        progress.elapsed = progress.seconds + 30  # preparation
        end.after_step(progress.seconds, progress.elapsed)
        if end.can_adapt():
            assert progress.step == 5
            end.adapt(0.125, 0.0)
    assert progress.elapsed <= 480
    assert lines == [
        "in 8 minutes about 34 steps; adapted to it: train.warmup=3, train.cooldown=10, train.save_every=6, "
        "train.valid_sentences=76; try a smaller model, e.g. --preset tiny"
    ]
    highest = learning_rate(1000, 256, 1000)
    assert rates[5] == max(rates) == pytest.approx(highest * (3 / 6) ** 0.5)
    assert rates[-1] < highest / 20


def test_settings_that_are_set_are_kept_and_a_long_warmup_is_named() -> None:
    lines: list[str] = []
    table = {"data": {"train": [["a", "b"]]}, "train": {"minutes": 8, "warmup": 1000, "cooldown": 0, "save_every": 100}}
    end = Ending(load_recipe(None, "small", table, []), progress := Progress(), lines.append)
    for step in range(1, 6):
        progress.step = step
        end.after_step(20.0 * step, 20.0 * step)
    assert end.can_adapt()
    end.adapt(0.0, 0.0)
    assert lines == ["in 8 minutes about 24 steps; the warmup alone is 1,000; try a smaller model, e.g. --preset tiny"]
    assert (end.config.warmup, end.config.cooldown, end.config.save_every, end.last_step) == (1000, 0, 100, 24)


@pytest.mark.parametrize(
    ("preset", "start", "suggests"),
    [("small", {}, True), ("small", {"start_from": "model"}, False), ("tiny", {}, False)],
)
def test_a_smaller_preset_is_suggested_where_there_is_one(preset: str, start: dict[str, str], suggests: bool) -> None:
    lines: list[str] = []
    table = {"data": {"train": [["a", "b"]]}, "train": {"minutes": 8, **start}}
    end = Ending(load_recipe(None, preset, table, []), progress := Progress(), lines.append)
    for step in range(1, 6):
        progress.step = step
        end.after_step(20.0 * step, 20.0 * step)
    end.adapt(0.0, 0.0)
    assert ("try a smaller model, e.g. --preset tiny" in lines[0]) is suggests


def test_a_cosine_reaches_its_end_in_time() -> None:
    progress = Progress()
    rates = run(progress, minutes=1, schedule="cosine")
    assert progress.step == 60
    assert rates[-1] < max(rates) / 100


def test_time_is_left_for_the_last_validation_and_for_finishing_the_model() -> None:
    progress = Progress()
    end = ending(progress, minutes=10, save_every=50)
    while not end.reached():
        progress.step += 1
        progress.seconds += 1.0
        progress.elapsed += 1.0
        end.after_step(progress.seconds, progress.elapsed)
        if end.can_adapt():
            end.adapt(0.01, 0.0)
        if progress.step % 50 == 0:
            progress.elapsed += 10
            end.validation_seconds = 10.0
    assert 500 <= progress.elapsed <= 545


def test_patience_is_followed_by_a_cooldown_that_is_not_set() -> None:
    end = ending(Progress(step=100), patience=3)
    end.after_validation(3)
    assert end.last_step == 110
    assert end.rate(110) < learning_rate(110, 128, 4) / 10

"""The learning rate schedule (section 5.3) and the end of a run, which may depend on time or on the validation."""

import math
from collections.abc import Callable

from transduce.training.checkpoint import Progress
from transduce.training.recipe import Recipe
from transduce.training.train_config import TrainConfig

_MEASURED_STEPS, _MEASURED_SHARE = 5, 0.05
"""Number of steps of this process, and share of `train.minutes`, after which the speed is known well enough to plan a
cooldown: the first steps may be several times slower than the others."""
_TOLERANCE = 0.1
"""Share of the remaining steps by which the end of a cooldown may be wrong at the measured speed."""


def learning_rate(step: int, d_model: int, warmup: int, scale: float = 1.0) -> float:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), for steps counted from 1."""
    return scale * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def cosine_learning_rate(step: int, steps: int, highest: float, warmup: int, final: float) -> float:
    """A linear rise to `highest` at step `warmup`, then half a cosine down to `final` at the last step."""
    if step <= warmup:
        return highest * step / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return final + (highest - final) * (1 + math.cos(math.pi * progress)) / 2


def scheduled_rate(step: int, config: TrainConfig, d_model: int) -> float:
    """The learning rate of a step, counted from 1, without a cooldown."""
    scale = scale_of(config, d_model)
    if config.schedule == "paper":
        return learning_rate(step, d_model, config.warmup, scale)
    highest = learning_rate(config.warmup, d_model, config.warmup, scale)
    return cosine_learning_rate(step, config.steps, highest, config.warmup, config.final_learning_rate)


def scale_of(config: TrainConfig, d_model: int) -> float:
    """The scale of the schedule: as given, or such that the highest rate is `train.learning_rate`."""
    if config.learning_rate is None:
        return config.learning_rate_scale
    return config.learning_rate * (d_model * config.warmup) ** 0.5


def cooldown_factor(step: int, steps: int, cooldown: float) -> float:
    """A factor on the learning rate that falls linearly over the last `cooldown` of `steps`, to 0 after the last."""
    return min(1.0, (steps + 1 - step) / (min(cooldown, steps) + 1))


class Ending:
    """The last step of a run and its cooldown, as far as they are known; keeps decisions in the progress."""

    def __init__(self, recipe: Recipe, progress: Progress, log: Callable[[str], None]) -> None:
        self._config, self._d_model, self._progress = recipe.train, recipe.model.d_model, progress
        self._log = log
        self._measured_from: tuple[int, float] | None = None
        """The step and the training time from which the speed of this process is measured."""
        self._decided_by_minutes = False
        """Whether this process has decided on the end because of `train.minutes`."""
        if progress.ended_by not in (self._by_minutes, self._by_patience):  # decided with another setting
            progress.last_step, progress.cooldown, progress.ended_by = 0, 0.0, ""
        if self.seconds_left(progress.seconds) == 0 and progress.step and not progress.ended_by:
            self._end_after(progress.step, self._by_minutes)

    @property
    def last_step(self) -> int:
        """The step after which the run ends, or an upper bound if that is not decided yet."""
        decided = self._progress.last_step if self._progress.ended_by else self._config.steps
        return min(decided, self._config.steps)

    def reached(self) -> bool:
        """Whether the last step is done."""
        return self._progress.step >= self.last_step

    @property
    def reason(self) -> str:
        """The setting that ended the run, with its value."""
        return self._progress.ended_by or f"train.steps={self._config.steps}"

    @property
    def may_be_earlier(self) -> bool:
        """Whether `train.patience` may still end the run before the last step."""
        return bool(self._config.patience) and not self._progress.ended_by

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 1."""
        return scheduled_rate(step, self._config, self._d_model) * self._factor(step)

    def seconds_left(self, seconds: float) -> float | None:
        """Training time left of `train.minutes` after this much; None if there is no limit."""
        return None if self._config.minutes is None else max(0.0, self._config.minutes * 60 - seconds)

    def after_step(self, seconds: float) -> None:
        """Decide on the end if `train.minutes` requires it; `seconds` is the training time of the run so far."""
        step, left = self._progress.step, self.seconds_left(seconds)
        decided = self._progress.ended_by == self._by_minutes
        if left is None or (decided and not self._decided_by_minutes):
            return
        if left == 0 and not decided:
            self._end_after(step, self._by_minutes)
        if self._measured_from is None:  # not from the start, because the first step includes compilation
            self._measured_from = step, seconds
        first, began = self._measured_from
        assert self._config.minutes is not None
        too_early = step < first + _MEASURED_STEPS or seconds - began < _MEASURED_SHARE * 60 * self._config.minutes
        if not self._config.cooldown or too_early or left == 0:
            return
        steps_left = int(left * (step - first) / max(1e-9, seconds - began))
        last = min(step + steps_left, self._config.steps)
        if decided:
            wrong = abs(last - self.last_step) > _TOLERANCE * (self.last_step - step)
        else:
            wrong = steps_left <= self._config.cooldown and last < self.last_step
        if wrong:
            self._end_after(last, self._by_minutes)
            self._measured_from, self._decided_by_minutes = (step, seconds), True

    def after_validation(self, without_improvement: int) -> None:
        """Decide on the end if there were `train.patience` validations without a better score."""
        if self.may_be_earlier and without_improvement >= (self._config.patience or 0):
            last = min(self._progress.step + self._config.cooldown, self._config.steps)
            self._end_after(last, self._by_patience)

    def _end_after(self, last: int, reason: str) -> None:
        """End the run after step `last`; until then the learning rate falls from its present value."""
        progress = self._progress
        if self._config.cooldown:
            progress.cooldown = (last - progress.step + 1) / self._factor(progress.step) - 1
        progress.last_step, progress.ended_by = last, reason
        falls = ", and the learning rate falls until then" if last > progress.step else ""
        self._log(f"the run ends after step {last:,} because of {reason}{falls}")

    def _factor(self, step: int) -> float:
        cooldown = self._progress.cooldown if self._progress.ended_by else self._config.cooldown
        return cooldown_factor(step, self.last_step, cooldown)

    @property
    def _by_minutes(self) -> str:
        return f"train.minutes={self._config.minutes:g}" if self._config.minutes is not None else "train.minutes"

    @property
    def _by_patience(self) -> str:
        return f"train.patience={self._config.patience}"

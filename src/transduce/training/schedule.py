"""The learning rate schedule (section 5.3) and the end of a run, which may depend on time or on the validation."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from transduce.training.checkpoint import Progress
from transduce.training.recipe import Recipe, read_preset
from transduce.training.train_config import TrainConfig

_MEASURED_STEPS, _MEASURED_SHARE = 4, 0.05
"""Number of steps after the first of this process after which the end is planned by their speed, and share of
`train.minutes` that is measured before a plan is corrected."""
_TOLERANCE = 0.1
"""Share of the remaining steps by which the planned end may be wrong at the measured speed."""
_WARMUP_SHARE, _COOLDOWN_SHARE, _CHECKPOINTS = 0.1, 0.3, 5
"""Shares of warmup and cooldown of the steps of a run, and its number of checkpoints, if they are adapted."""
_PATIENCE_SHARE = 0.1
"""Length of the cooldown after `train.patience`, relative to the steps before it, if it is adapted."""
_SCORING_SHARE, _VALIDATION_SHARE = 0.02, 0.2
"""Shares of `train.minutes` that the translation of a validation and all validations together may take, if the numbers
of sentences and of checkpoints are adapted."""
_END_VALIDATIONS = 6
"""Time of the last validation and of finishing the model, which is scored with a wider beam, in validations."""
_FEW_STEPS = 500


def learning_rate(step: int, d_model: int, warmup: int, scale: float = 1.0) -> float:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), for steps counted from 1."""
    return scale * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def cosine_learning_rate(step: int, steps: int, highest: float, warmup: int, final: float) -> float:
    """A linear rise to `highest` at step `warmup`, then half a cosine down to `final` at the last step."""
    if step <= warmup:
        return highest * step / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return final + (highest - final) * (1 + math.cos(math.pi * progress)) / 2


def scheduled_rate(step: int, config: TrainConfig, d_model: int, last_step: int | None = None) -> float:
    """The learning rate of a step, counted from 1, without a cooldown; a cosine ends at `last_step`."""
    scale = config.learning_rate_scale
    if config.learning_rate is not None:  # the highest rate
        scale = config.learning_rate * (d_model * config.warmup) ** 0.5
    if config.schedule == "paper":
        return learning_rate(step, d_model, config.warmup, scale)
    highest = learning_rate(config.warmup, d_model, config.warmup, scale)
    return cosine_learning_rate(step, last_step or config.steps, highest, config.warmup, config.final_learning_rate)


def cooldown_factor(step: int, steps: int, cooldown: float) -> float:
    """A factor on the learning rate that falls linearly over the last `cooldown` of `steps`, to 0 after the last."""
    return min(1.0, (steps + 1 - step) / (min(cooldown, steps) + 1))


class Ending:
    """The last step of a run and its cooldown, as far as they are known; keeps decisions in the progress.

    `train.minutes` limits the time of the whole run. After a few steps, the settings that `train.adapts` names are
    chosen for the number of steps that fit, and the end is corrected whenever the speed differs from the estimate.
    """

    def __init__(self, recipe: Recipe, progress: Progress, log: Callable[[str], None]) -> None:
        self._d_model, self._progress, self._log = recipe.model.d_model, progress, log
        self._could_be_smaller = not recipe.train.start_from and self._d_model > read_preset("tiny")["model"]["d_model"]
        self.config = replace(recipe.train, **progress.adapted)
        """The settings, with those that were adapted to `train.minutes`."""
        self._measured_from: tuple[int, float] | None = None
        """The step and the training time from which the speed of this process is measured."""
        self._seconds = self._elapsed = 0.0
        """Training time and whole time of the run after the last step."""
        self._may_adapt = progress.step == 0
        self._told = False
        """Whether the log has the number of steps that fit into `train.minutes`."""
        self._decided_here = False
        """Whether this process has decided on the end because of `train.minutes`."""
        self.validation_seconds = 0.0
        """Time of a validation, from which the time of the following ones and of the end of the run is estimated."""
        if progress.ended_by not in (self._by_minutes, self._by_patience):  # decided with another setting
            progress.last_step, progress.cooldown, progress.ended_by = 0, 0.0, ""
        if self.seconds_left(progress.elapsed) == 0 and progress.step and not progress.ended_by:
            self._end_after(progress.step, self._by_minutes)

    @property
    def last_step(self) -> int:
        """The step after which the run ends, or an upper bound if that is not decided yet."""
        decided = self._progress.last_step if self._progress.ended_by else self.config.steps
        return min(decided, self.config.steps)

    def reached(self) -> bool:
        return self._progress.step >= self.last_step

    @property
    def reason(self) -> str:
        """The setting that ended the run, with its value."""
        return self._progress.ended_by or f"train.steps={self.config.steps}"

    @property
    def may_be_earlier(self) -> bool:
        """Whether `train.patience` may still end the run before the last step."""
        return bool(self.config.patience) and self._progress.ended_by != self._by_patience

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 1."""
        last_step = self.last_step if self._progress.ended_by == self._by_minutes else None
        return scheduled_rate(step, self.config, self._d_model, last_step) * self._factor(step)

    def seconds_left(self, elapsed: float) -> float | None:
        """Time left of `train.minutes` after this much; None if there is no limit."""
        return None if self.config.minutes is None else max(0.0, self.config.minutes * 60 - elapsed)

    def after_step(self, seconds: float, elapsed: float) -> None:
        """Decide on the end if `train.minutes` requires it.

        `seconds` is the training time of the run so far, and `elapsed` its whole time.
        """
        self._seconds, self._elapsed = seconds, elapsed
        step, left = self._progress.step, self.seconds_left(elapsed)
        if left is None or self.reached():
            return
        if self._measured_from is None:  # not from the start, because the first step includes compilation
            self._measured_from = step, seconds
        decided = self._progress.ended_by == self._by_minutes
        if left <= _END_VALIDATIONS * self.validation_seconds and (self._decided_here or not decided):
            self._end_after(step, self._by_minutes)
        elif not self._may_adapt and self._speed_is_known(_MEASURED_SHARE):
            last = self._estimate()
            wrong = abs(last - self.last_step) > _TOLERANCE * (self.last_step - step)
            if decided and not self._decided_here:  # a resumed run keeps its end, unless it would be too late
                wrong = wrong and last < self.last_step
            if wrong if decided else last < self.last_step:
                self._end_after(last, self._by_minutes)
                self._measured_from, self._decided_here = (step, seconds), True

    def can_adapt(self) -> bool:
        """Whether the speed is known well enough to adapt settings to `train.minutes`, which is done once."""
        return self._may_adapt and self._speed_is_known(0.0)

    def _validation_sentences(self, seconds_per_sentence: float) -> int:
        """The number of sentences that a validation scores, given the time of one."""
        config = self.config
        if config.minutes is None or "valid_sentences" not in config.adapts or not seconds_per_sentence:
            return config.valid_sentences
        fitting = int(_SCORING_SHARE * 60 * config.minutes / seconds_per_sentence)
        return min(config.valid_sentences, max(1, fitting))

    def adapt(self, seconds_per_sentence: float, seconds_of_loss: float) -> None:
        """Choose the settings that `train.adapts` names, so that they suit the number of steps that fit.

        The arguments are the time to score a sentence, and that of the loss of the validation data.
        """
        config, adapts, self._may_adapt = self.config, self.config.adapts, False
        assert config.minutes is not None
        sentences = self._validation_sentences(seconds_per_sentence)
        self.validation_seconds = seconds_of_loss + sentences * seconds_per_sentence
        affordable = _VALIDATION_SHARE * 60 * config.minutes / max(1e-9, self.validation_seconds)
        checkpoints = max(1, int(min(affordable, _CHECKPOINTS)))
        last = self._estimate(checkpoints)
        if last >= config.steps:
            return
        chosen: dict[str, Any] = {}
        if "warmup" in adapts and config.warmup > last * _WARMUP_SHARE:
            highest = scheduled_rate(config.warmup, config, self._d_model)
            chosen = {"warmup": max(1, int(last * _WARMUP_SHARE)), "learning_rate": highest, "learning_rate_scale": 1.0}
        if "cooldown" in adapts and config.schedule == "paper":
            chosen["cooldown"] = int(last * _COOLDOWN_SHARE)
        if "save_every" in adapts:
            chosen["save_every"] = min(config.save_every, max(1, last // checkpoints))
        if sentences < config.valid_sentences:
            chosen["valid_sentences"] = sentences
        self._progress.adapted, self.config = chosen, replace(config, **chosen)
        self._log(self._describe(self._estimate()))
        self._told = True
        self._end_after(self._estimate(), self._by_minutes)
        self._decided_here = True

    def after_validation(self, without_improvement: int) -> None:
        """Decide on the end if there were `train.patience` validations without a better score."""
        if self.may_be_earlier and without_improvement >= (self.config.patience or 0):
            step, cooldown = self._progress.step, self.config.cooldown
            if "cooldown" in self.config.adapts:
                cooldown = int(step * _PATIENCE_SHARE)
            self._end_after(min(step + cooldown, self.last_step), self._by_patience)

    def _speed_is_known(self, share: float) -> bool:
        """Whether there were enough steps in at least this share of the time."""
        if self._measured_from is None or self.config.minutes is None:
            return False
        steps, seconds = self._progress.step - self._measured_from[0], self._seconds - self._measured_from[1]
        limit = 60 * self.config.minutes
        return steps >= 1 and seconds >= share * limit and (steps >= _MEASURED_STEPS or seconds > limit / 4)

    def _estimate(self, checkpoints: int | None = None) -> int:
        """The last step that fits into the time at the measured speed, with validations and the end of the run."""
        assert self._measured_from is not None
        step, left = self._progress.step, self.seconds_left(self._elapsed) or 0.0
        per_step = max(1e-9, (self._seconds - self._measured_from[1]) / (step - self._measured_from[0]))
        left -= _END_VALIDATIONS * self.validation_seconds
        if checkpoints is None:
            per_step += self.validation_seconds / self.config.save_every
        else:
            left -= checkpoints * self.validation_seconds
        return min(step + max(0, int(left / per_step)), self.config.steps)

    def _end_after(self, last: int, reason: str) -> None:
        """End the run after step `last`; the learning rate has fallen by then, without a jump."""
        progress, factor, cooldown = self._progress, self._factor(self._progress.step), self.config.cooldown
        if factor == 1 and reason == self._by_minutes and last - progress.step >= cooldown:  # it begins later
            progress.cooldown = cooldown
        elif cooldown or reason == self._by_patience:
            progress.cooldown = (last - progress.step + 1) / factor - 1
        if progress.ended_by != reason and (reason == self._by_patience or not self._told):
            falls = ", and the learning rate falls until then" if last > progress.step else ""
            self._log(f"the run ends after step {last:,} because of {reason}{falls}")
        progress.last_step, progress.ended_by = last, reason

    def _describe(self, last: int) -> str:
        """What fits into the time, and what was adapted to it."""
        text = f"in {self.config.minutes:g} minutes about {last:,} steps"
        if self.config.warmup > last / 2:
            text += f"; the warmup alone is {self.config.warmup:,}"
        chosen = {name: value for name, value in self._progress.adapted.items() if not name.startswith("learning_rate")}
        if chosen:
            text += "; adapted to it: " + ", ".join(f"train.{name}={value}" for name, value in chosen.items())
        too_slow = last < _FEW_STEPS and self._could_be_smaller
        return text + ("; try a smaller model, e.g. --preset tiny" if too_slow else "")

    def _factor(self, step: int) -> float:
        cooldown = self._progress.cooldown if self._progress.ended_by else self.config.cooldown
        return cooldown_factor(step, self.last_step, cooldown)

    @property
    def _by_minutes(self) -> str:
        return f"train.minutes={self.config.minutes:g}" if self.config.minutes is not None else "train.minutes"

    @property
    def _by_patience(self) -> str:
        return f"train.patience={self.config.patience}"

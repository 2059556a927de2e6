"""The verdict on a run in one or two sentences, with the next command, by rules on its measurements."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, linear_regression, median
from typing import Any

from transduce.report.charts import Point
from transduce.report.run import Run
from transduce.training.metrics import figure_text, points_of

_SMOOTHED = 3
"""Number of measurements whose mean is compared."""
_DIVERGED, _DIVERGED_LOSS = 1.3, 0.3
"""The training loss has diverged if it is this many times its lowest value, and higher by this."""
_OVERFITTED, _OVERFITTED_SHARE = 1.02, 0.8
"""The validation loss has risen if it is this many times its lowest value, which was in this share of the run."""
_FALLS, _FALLS_MUCH, _FLAT = 0.01, 0.05, 0.005
"""Relative fall of the loss in a quarter of the run: of a run that ended early, of a complete one, of a plateau."""
_VALIDATED = 1.2
"""Time of training and validation, as a multiple of the time of training: an estimate."""
_WAITING = 0.2
"""Share of the training time in which a device waits for batches, from which the loader is too slow."""


@dataclass(frozen=True)
class Verdict:
    """A word for the run, what was found, and what to do next, with the command if there is one."""

    kind: str
    finding: str
    advice: str = ""
    command: str = ""

    @property
    def sentence(self) -> str:
        """The verdict without its command."""
        parts = [self.finding, self.advice] if self.advice else [self.finding]
        return f"{self.kind.capitalize()}: {'; '.join(parts)}{':' if self.command else '.'}"


def judge(run: Run) -> Verdict | None:
    """The first rule that applies; a slow loader is added to its finding. None if nothing was measured yet."""
    if not run.train:
        return None
    rules = (_diverged, _overfitting, _plateau, _undertrained)
    verdict = next((verdict for rule in rules if (verdict := rule(run))), None)
    waiting = _waiting(run)
    if waiting < _WAITING:
        return verdict or _fine(run)
    slow = f"the device waits for batches in {waiting:.0%} of the training time"
    if run.recipe.train.bpe_dropout or run.recipe.augment.enabled:
        slow += "; BPE-dropout and augmentation need more CPU cores"
    if verdict:
        return replace(verdict, finding=f"{verdict.finding}; data-bound too, because {slow}")
    command = _train(run, {"train.steps": 50}, "--profile", again=True)
    return Verdict("data-bound", slow, "see where the time goes with", command)


def _diverged(run: Run) -> Verdict | None:
    step, config = run.train[-1]["step"], run.recipe.train
    losses = points_of(run.train, "loss")
    means = [fmean(y for _, y in losses[n : n + _SMOOTHED]) for n in range(len(losses) - _SMOOTHED + 1)]
    lowest = min(means, default=0.0)
    if "loss" not in run.train[-1] and run.train[-1].get("skipped"):
        finding = f"the gradients of the steps before step {step:,} are not finite"
    elif run.valid and not math.isfinite(run.valid[-1]["loss"]):
        finding = f"the validation loss at step {run.valid[-1]['step']:,} is not a finite number"
    elif means and means[-1] > max(_DIVERGED * lowest, lowest + _DIVERGED_LOSS):
        at = losses[means.index(lowest) + _SMOOTHED - 1][0]
        finding = f"the training loss rose from {_loss(lowest)} at step {at:,} to {_loss(means[-1])}"
    else:
        return None
    rate = "learning_rate" if config.learning_rate else "learning_rate_scale"
    changes = {f"train.{rate}": f"{getattr(config, rate) / 2:g}", "train.clip_norm": 1.0}
    advice = "train again with a lower learning rate"
    return Verdict("diverged", finding, advice, _train(run, changes, again=True))


def _overfitting(run: Run) -> Verdict | None:
    valid, train = _validated(run), points_of(run.train, "loss")
    if len(valid) < _SMOOTHED or not train:
        return None
    (best, lowest), (last, loss) = min(valid, key=lambda point: point[1]), valid[-1]
    improves = run.valid[-1].get("criterion", "loss") != "loss" and run.valid[-1].get("best_step") == last
    then = [y for step, y in train if step <= best][-_SMOOTHED:] or [train[0][1]]
    falls = fmean(y for _, y in train[-_SMOOTHED:]) < fmean(then)
    if improves or not falls or loss < _OVERFITTED * lowest or best > _OVERFITTED_SHARE * last:
        return None
    finding = (
        f"the validation loss has risen from {_loss(lowest)} at step {best:,} to {_loss(loss)}, "
        "while the training loss falls"
    )
    dropout = min(0.5, getattr(run.recipe.model, "dropout", 0.0) + 0.1)
    changes = {"model.dropout": f"{dropout:g}", "train.patience": 3}
    advice = "use more text, or train again with more dropout and an earlier end"
    return Verdict("overfitting", finding, advice, _train(run, changes, again=True))


def _plateau(run: Run) -> Verdict | None:
    config, step, falls = run.recipe.train, run.train[-1]["step"], _fall(run)
    valid = _validated(run)
    if len(valid) < _SMOOTHED or falls is None or falls >= _FLAT:
        return None
    best = run.valid[-1].get("best_step", min(valid, key=lambda point: point[1])[0])
    if best > step / 2:
        return None
    name = run.scores.get(run.valid[-1].get("criterion", "loss"), "loss")
    finding = f"the best {name} on the validation set is that of step {best:,} of {step:,}"
    if config.cooldown or config.schedule == "cosine":
        return Verdict("plateau", finding, "a larger model or more text may help")
    fifth = max(1, step // 5)
    changes = {"train.steps": step + fifth, "train.cooldown": fifth}
    return Verdict("plateau", finding, "let the learning rate fall to zero with", _train(run, changes))


def _undertrained(run: Run) -> Verdict | None:
    config, step, falls = run.recipe.train, run.train[-1]["step"], _fall(run)
    done = f"{step:,} of {config.steps:,} steps"
    falling = "; the loss is still falling" if falls is not None and falls >= _FALLS else ""
    if not run.final:
        return Verdict("not finished", f"{done}{falling}", "resume with", _train(run, {}))
    reason = str(run.final.get("ended_by", "train.minutes")).partition("=")[0]
    if step < config.steps and reason == "train.minutes" and (falls is None or falling):
        spent = min(config.minutes or 1, run.train[-1].get("seconds", math.inf) / 60 * _VALIDATED)
        command = _train(run, {"train.minutes": math.ceil(spent * config.steps / step)})
        return Verdict("undertrained", f"{done} because train.minutes ended{falling}", "resume with", command)
    if falls is None and step < config.warmup:
        finding = f"{step:,} steps are fewer than train.warmup ({config.warmup:,}): the learning rate was still rising"
        return Verdict("undertrained", finding, "resume with", _train(run, {"train.steps": 4 * config.warmup}))
    if step >= config.steps and falls is not None and falls >= _FALLS_MUCH:
        finding = f"after all {step:,} steps, the loss still falls by {falls:.0%} in a quarter of the run"
        return Verdict("undertrained", finding, "resume with", _train(run, {"train.steps": 2 * config.steps}))
    return None


def _fine(run: Run) -> Verdict:
    falls = _fall(run)
    finding = f"{run.train[-1]['step']:,} steps"
    finding += "" if falls is None else f", and the loss fell by {max(falls, 0):.1%} in the last quarter of them"
    if not run.task.translates:
        return Verdict("fine", finding)
    return Verdict(
        "fine", finding, "translate with", shlex.join(["transduce", "translate", "--model", str(run.folder)])
    )


def _validated(run: Run) -> list[Point]:
    """The validation losses of this run; those at step 0 are of the model that it started from."""
    return [point for point in points_of(run.valid, "loss") if point[0]]


def _fall(run: Run) -> float | None:
    """By how much of its last value the loss falls in a quarter of the run, by a line through its second half.

    The validation loss, if there are enough values, or else that of training; None if there are too few of both.
    """
    last = run.train[-1]["step"]
    for points in (_validated(run), points_of(run.train, "loss")):
        half: Sequence[Point] = [point for point in points if point[0] >= last / 2]
        if len(half) >= _SMOOTHED:
            slope = linear_regression(*zip(*half, strict=True)).slope
            return -slope * last / 4 / (abs(half[-1][1]) or 1.0)
    return None


def _waiting(run: Run) -> float:
    """Share of the training time in which the device waits for batches; the first measurement includes the start."""
    return median([y for _, y in points_of(run.train[1:], "waiting")] or [0.0])


def _train(run: Run, changes: Mapping[str, Any], *more: str, again: bool = False) -> str:
    """The command that resumes the run with other settings, or trains it `again` in another folder."""
    out = f"{run.folder}-2" if again else str(run.folder)
    sets = [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    return shlex.join(["transduce", "train", str(run.folder / "config.toml"), "--out", out, *sets, *more])


def _loss(value: float) -> str:
    return figure_text("loss", value)

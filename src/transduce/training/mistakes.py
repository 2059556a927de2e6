"""Mistakes in settings: those that cannot be meant are refused, those that may be meant give a warning."""

from collections.abc import Callable, Iterator
from pathlib import Path

from transduce.config import require
from transduce.training.recipe import Recipe
from transduce.training.schedule import scheduled_rate
from transduce.training.train_config import TrainConfig

# Bounds for the highest learning rate times the root of the width; the paper's is 0.016, that of the preset tiny 0.05.
_RISKY, _HOPELESS = 0.15, 0.5
_FINE_TUNING_RATE = 1e-4
"""The highest learning rate that is recommended for fine-tuning."""


def refuse_mistakes(recipe: Recipe) -> None:
    """Raise an error if the settings of a new run cannot be meant."""
    config, peak = recipe.train, highest_rate(recipe)
    require(
        _relative(recipe, peak) <= _HOPELESS,
        f"the learning rate would rise to {peak:.2g} at step {min(config.warmup, config.steps):,}, and training would "
        f"diverge; {_lower_rate(config)}",
    )
    require(
        not config.r_drop or getattr(recipe.model, "dropout", None) != 0,
        "train.r_drop compares two passes with different dropout, but model.dropout is 0; set one of them",
    )


def warn(recipe: Recipe, processes: int, log: Callable[[str], None]) -> None:
    """Warn of settings that are likely to be mistakes."""
    for line in _warnings(recipe):
        log(f"warning: {line}")
    if recipe.train.shard and processes == 1:
        log("warning: train.shard saves no memory with one process; start several with torchrun")


def highest_rate(recipe: Recipe) -> float:
    """The highest learning rate of the run, without the cooldown."""
    return scheduled_rate(min(recipe.train.warmup, recipe.train.steps), recipe.train, recipe.model.d_model)


def _warnings(recipe: Recipe) -> Iterator[str]:
    config, data = recipe.train, recipe.data
    steps, warmup, cooldown = config.steps, config.warmup, config.cooldown
    if not data.all_valid:
        yield "no validation text: the model will not be scored; give some with --valid"
    trained_on = {Path(name).resolve() for files in data.all_train for name in files}
    for name in (name for files in data.all_valid for name in files if Path(name).resolve() in trained_on):
        yield f"{name} is both training text and validation text: its scores will say nothing about other text"
    if steps < warmup:
        yield (
            f"train.steps ({steps:,}) is less than train.warmup ({warmup:,}): the learning rate will not reach its "
            "maximum; lower train.warmup for a short run"
        )
    elif steps < warmup + cooldown:
        yield (
            f"train.steps ({steps:,}) is less than train.warmup ({warmup:,}) and train.cooldown ({cooldown:,}) "
            "together: the learning rate will not reach its maximum"
        )
    if _relative(recipe, peak := highest_rate(recipe)) > _RISKY:
        yield f"the learning rate will rise to {peak:.2g}, and training may diverge; {_lower_rate(config)}"
    as_new = config.learning_rate is None and config.learning_rate_scale == 1.0
    if config.start_from and as_new and peak > _FINE_TUNING_RATE:
        yield (
            f"the learning rate will rise to {peak:.2g}, as for a new model, which makes the model forget; "
            "for fine-tuning, give a lower one, e.g. train.learning_rate=1e-4"
        )
    checkpoints = -(-steps // config.save_every)
    if checkpoints < config.average != TrainConfig.average:
        yield (
            f"train.average is {config.average}, but there will be {checkpoints} checkpoints only; "
            "lower train.save_every"
        )


def _relative(recipe: Recipe, rate: float) -> float:
    return float(rate * recipe.model.d_model**0.5)


def _lower_rate(config: TrainConfig) -> str:
    if config.learning_rate is not None:
        return "lower train.learning_rate"
    return "raise train.warmup, or give the highest rate with train.learning_rate"

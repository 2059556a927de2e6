"""The learning rate schedule: the paper's (section 5.3) with an optional linear cooldown, or half a cosine."""

import math

from transduce.training.train_config import TrainConfig


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

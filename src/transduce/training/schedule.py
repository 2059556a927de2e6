"""The learning rate schedule (section 5.3), and an optional linear cooldown."""

from transduce.runs.recipe import TrainConfig


def learning_rate(step: int, d_model: int, warmup: int, scale: float = 1.0) -> float:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), for steps counted from 1."""
    return scale * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def scale_of(config: TrainConfig, d_model: int) -> float:
    """The scale of the schedule: as given, or such that the highest rate is `train.learning_rate`."""
    if config.learning_rate is None:
        return config.learning_rate_scale
    return config.learning_rate * (d_model * config.warmup) ** 0.5


def cooldown_factor(step: int, steps: int, cooldown: float) -> float:
    """A factor on the learning rate that falls linearly over the last `cooldown` of `steps`, to 0 after the last."""
    return min(1.0, (steps + 1 - step) / (min(cooldown, steps) + 1))

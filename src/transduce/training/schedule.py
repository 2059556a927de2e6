"""The learning rate schedule (section 5.3), and an optional linear cooldown."""


def learning_rate(step: int, d_model: int, warmup: int, scale: float = 1.0) -> float:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), for steps counted from 1."""
    return scale * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def with_cooldown(rate: float, step: int, steps: int, cooldown: int) -> float:
    """The rate, decayed linearly over the last `cooldown` of `steps`; it would reach 0 at the step after the last."""
    return rate * min(1.0, (steps + 1 - step) / (min(cooldown, steps) + 1))

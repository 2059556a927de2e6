"""The learning rate over time (section 5.3), and how a run may end it."""


def learning_rate(step: int, d_model: int, warmup: int, scale: float = 1.0) -> float:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), for steps counted from 1."""
    return scale * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def cooled(rate: float, step: int, steps: int, cooldown: int) -> float:
    """The rate, which falls in a straight line over the last `cooldown` of `steps`, to 0 just after them."""
    return rate * min(1.0, (steps + 1 - step) / (min(cooldown, steps) + 1))

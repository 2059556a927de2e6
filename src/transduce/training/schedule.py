"""The learning rate over time (section 5.3)."""


def learning_rate(step: int, d_model: int, warmup: int, scale: float = 1.0) -> float:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), for steps counted from 1."""
    return scale * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)

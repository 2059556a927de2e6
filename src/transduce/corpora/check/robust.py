"""Centre and spread that a few wild values cannot move."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_NORMAL = 1.4826
"""What makes the median deviation of a normal distribution its standard deviation."""


def spread(deviations: Floats, least: float) -> float:
    """The standard deviation, by the median; at least so much, as half of all values may be the same."""
    return max(_NORMAL * float(np.median(np.abs(deviations))), least)

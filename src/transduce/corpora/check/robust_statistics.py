"""A standard deviation that outliers hardly change, and the array types of the checks."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_NORMAL = 1.4826
"""Ratio of standard deviation to median absolute deviation in a normal distribution."""


def robust_std(deviations: Floats, minimum: float) -> float:
    """The standard deviation, from the median absolute deviation; `minimum` if most values are (nearly) the same."""
    return max(_NORMAL * float(np.median(np.abs(deviations))), minimum)

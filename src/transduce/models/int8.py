"""Matrices quantised to int8: a quarter of the bytes of float32.

A row is stored as integers q in -127..127 and its largest magnitude; its weights are about q * largest / 127. The
native engine rounds in the same way (`quantise_row` in engines/native/int8.h), so it uses the stored integers. Since
`largest` is stored without the division by 127, it is read back exactly, and the engine recomputes the same integers
from the weights in float32 (`from_int8`).

Rows that are integers times one number already, as in a model that another toolkit stored in 8 bits with one scale for
a matrix, keep these integers, the largest of which may be less than 127. Nothing is lost then.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from transduce.models.arrays import FEWEST_ON_GRID
from transduce.models.header import LARGEST, is_matrix


def to_int8(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors to store for these weights: matrices as int8, everything else unchanged."""
    stored = {}
    for name, x in weights.items():
        if is_matrix(name, tuple(x.shape)):
            largest_N1 = _magnitude_of_127(x)
            # A Python number over a tensor is computed by a rounded reciprocal, which can differ from C by one bit.
            inverse_N1 = torch.where(largest_N1 > 0, torch.tensor(127.0) / largest_N1, 0)
            stored[name], stored[name + LARGEST] = (x * inverse_N1).round().to(torch.int8), largest_N1[:, 0]
        else:
            stored[name] = x
    return stored


def from_int8(q_NK: Tensor, largest_N: Tensor) -> Tensor:
    """The weights of a matrix in float32."""
    # In double precision, 127 times the scale is exactly `largest`.
    return (q_NK * (largest_N.double() / 127)[:, None]).float()


def _magnitude_of_127(x_NK: Tensor) -> Tensor:
    """The magnitude (N, 1) that becomes 127: the largest, unless the row keeps its integers."""
    largest_N1 = x_NK.abs().amax(dim=1, keepdim=True)
    result_N1 = largest_N1.clone()
    if x_NK.shape[1] < FEWEST_ON_GRID:
        return result_N1
    undecided_N = (largest_N1[:, 0] > 0) & (127 * largest_N1[:, 0]).isfinite()
    for steps in range(127, 0, -1):  # in the largest weight
        inverse_N1 = torch.tensor(float(steps)) / largest_N1
        found_N = undecided_N & _whole(x_NK[:, :FEWEST_ON_GRID] * inverse_N1)
        if found_N.any():
            found_N[found_N.clone()] = _whole(x_NK[found_N] * inverse_N1[found_N])
            result_N1[found_N] *= 127 / steps
            undecided_N &= ~found_N
    return result_N1


def _whole(x_NK: Tensor) -> Tensor:
    """Whether all numbers of a row are whole, but for rounding."""
    return ((x_NK - x_NK.round()).abs() < 1e-4).all(dim=1)

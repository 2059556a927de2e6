"""Matrices in 8-bit whole numbers: a quarter of the bytes of float32.

A row is stored as whole numbers q in -127..127 and its largest magnitude; its weights are about q * largest / 127. The
native engine rounds in the same way (`quantise_row` in engines/native/int8.h). Since `largest` is stored as it is, and
not divided by 127, it comes back to the last bit: in weights read back, the engine finds the very numbers stored.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from transduce.models.header import LARGEST, is_matrix


def to_int8(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What to store for these weights: every matrix in whole numbers, the rest as it is."""
    stored = {}
    for name, x in weights.items():
        if is_matrix(name, tuple(x.shape)):
            largest_N1 = x.abs().amax(dim=1, keepdim=True)
            inverse_N1 = torch.where(largest_N1 > 0, 127 / largest_N1, 0)
            stored[name], stored[name + LARGEST] = (x * inverse_N1).round().to(torch.int8), largest_N1[:, 0]
        else:
            stored[name] = x
    return stored


def from_int8(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that were stored, in float32."""
    weights = {name: x for name, x in stored.items() if not name.endswith(LARGEST)}
    for name, x in weights.items():
        if is_matrix(name, tuple(x.shape)):
            scale_N1 = stored[name + LARGEST].double()[:, None] / 127  # in double precision, 127 of it are `largest`
            weights[name] = (x * scale_N1).float()
    return weights

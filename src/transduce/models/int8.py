"""Matrices quantised to int8: a quarter of the bytes of float32.

A row is stored as integers q in -127..127 and its largest magnitude; its weights are about q * largest / 127. The
native engine rounds in the same way (`quantise_row` in engines/native/int8.h), so it uses the stored integers. Since
`largest` is stored without the division by 127, it is read back exactly, and the engine recomputes the same integers
from the weights in float32 (`Int8Matrix.rows`).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from transduce.models.header import LARGEST, is_matrix


def to_int8(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors to store for these weights: matrices as int8, everything else unchanged."""
    stored = {}
    for name, x in weights.items():
        if is_matrix(name, tuple(x.shape)):
            largest_N1 = x.abs().amax(dim=1, keepdim=True)
            # A Python number over a tensor is computed by a rounded reciprocal, which can differ from C by one bit.
            inverse_N1 = torch.where(largest_N1 > 0, torch.tensor(127.0) / largest_N1, 0)
            stored[name], stored[name + LARGEST] = (x * inverse_N1).round().to(torch.int8), largest_N1[:, 0]
        else:
            stored[name] = x
    return stored

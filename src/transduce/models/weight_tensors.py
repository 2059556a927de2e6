"""Weights as torch tensors: written to a file and read from it, in float32 or quantised to int8.

An int8 matrix has a quarter of the bytes. A row is stored as integers q in -127..127 and its largest magnitude; its
weights are about q * largest / 127. The native engine rounds in the same way (`quantise_row` in fast/native/int8.h), so
it uses the stored integers. Since `largest` is stored without the division by 127, it is read back exactly, and the
engine recomputes the same integers from the weights in float32 (`from_int8`).

Rows that are integers times one number already, as in a model that another toolkit stored in 8 bits with one scale for
a matrix, keep these integers, the largest of which may be less than 127. Nothing is lost then.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from transduce.errors import ModelError
from transduce.models.weights_file import (
    FEWEST_ON_GRID,
    LARGEST,
    Array,
    Int8Matrix,
    Precision,
    RawTensor,
    WeightsFile,
    is_matrix,
)

_TYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "I8": torch.int8}


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors by name; raises OSError if the disk is full."""
    path.touch()
    mode = path.stat().st_mode  # the default mode; safetensors would make the file private
    try:
        save_file({name: x.contiguous() for name, x in tensors.items()}, path)
        path.chmod(mode)
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from None


def read_weights(path: Path, expected: Mapping[str, Tensor], precision: Precision = "float32") -> dict[str, Tensor]:
    """Read the weights of a safetensors file; names and shapes must be as expected, and all values finite."""
    return weight_tensors(WeightsFile(path, precision), expected)


def weight_tensors(weights: WeightsFile, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a file in float32; names and shapes must be as expected, and all values finite."""
    weights.require_shapes({name: tuple(x.shape) for name, x in expected.items()})
    return {name: to_tensor(x) for name, x in weights.items()}


def to_tensor(stored: Array) -> Tensor:
    if isinstance(stored, Int8Matrix):
        return from_int8(_as_stored(stored.q_NK), _finite(stored.largest_N))
    return _finite(stored)


def _finite(stored: RawTensor) -> Tensor:
    x = _as_stored(stored).float()
    if x.numel() and not torch.stack(torch.aminmax(x)).isfinite().all():
        raise ModelError(f"{stored.origin} contains values that are not finite numbers")
    return x


def _as_stored(stored: RawTensor) -> Tensor:
    """The tensor, which shares the memory of its bytes."""
    if not stored.content:
        return torch.zeros(stored.shape)
    return torch.frombuffer(stored.content, dtype=_TYPES[stored.dtype]).view(stored.shape)


def module_arrays(tensors: Mapping[str, Tensor]) -> dict[str, RawTensor]:
    """The weights of a torch module, its `state_dict`; those in float32 on a CPU are not copied."""
    floats = {name: x.detach().float().cpu().contiguous() for name, x in tensors.items()}
    return {name: RawTensor("F32", tuple(x.shape), x.flatten().numpy().data.cast("B")) for name, x in floats.items()}


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

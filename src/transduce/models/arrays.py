"""The weights of a model as numpy arrays, without torch."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from transduce.models.model import Model

Floats = npt.NDArray[np.float32]
FEWEST_ON_GRID = 16
"""Weights of a row of which it is no coincidence that they are multiples of one number (models/int8.py)."""


class Int8Matrix(NamedTuple):
    """A matrix of 8-bit integers, as `models/int8.py` describes it; its weights are about q * largest / 127."""

    q_NK: npt.NDArray[np.int8]
    largest_N: Floats
    """The largest magnitude of each row."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.q_NK.shape

    def rows(self, index: npt.NDArray[np.int64] | slice = slice(None)) -> Floats:
        """These rows in float32."""
        # In double precision, 127 times the scale is exactly `largest`.
        scale_N1 = self.largest_N[index].astype(np.float64)[:, None] / 127
        return (self.q_NK[index] * scale_N1).astype(np.float32)


Array = Floats | Int8Matrix
Arrays = Mapping[str, Array]
"""Weights by name; matrices are float32, or 8-bit integers if the model is stored so."""


def concatenated(matrices: Sequence[Array]) -> Array:
    """The rows of several matrices, which are all stored in the same way."""
    integers = [matrix for matrix in matrices if isinstance(matrix, Int8Matrix)]
    if integers:
        return Int8Matrix(
            np.concatenate([matrix.q_NK for matrix in integers]),
            np.concatenate([matrix.largest_N for matrix in integers]),
        )
    return np.concatenate([matrix for matrix in matrices if not isinstance(matrix, Int8Matrix)])


def module_arrays(model: "Model") -> Arrays:
    """The weights of a torch module; those in float32 on a CPU are not copied."""
    return {name: x.detach().float().cpu().contiguous().numpy() for name, x in model.state_dict().items()}


def fixed_positions(kind: str, length: int, d_model: int) -> Floats:
    """The positional encodings of a model whose positions are not learned."""
    return marian_sinusoids(length, d_model) if kind == "marian" else sinusoids(length, d_model)


def marian_sinusoids(length: int, d_model: int) -> Floats:
    """Marian's sinusoids: all sines before all cosines, with wavelengths from 2 pi to exactly 10000 * 2 pi."""
    half = d_model // 2
    angle_TK = np.arange(length)[:, None] * np.exp(np.arange(half) * (-np.log(10000.0) / max(half - 1, 1)))
    return np.concatenate([np.sin(angle_TK), np.cos(angle_TK)], axis=1).astype(np.float32)


def sinusoids(length: int, d_model: int) -> Floats:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos of the same, as (length, d_model)."""
    angle_TD = np.arange(length)[:, None] * np.exp(np.arange(0, d_model, 2) * (-np.log(10000.0) / d_model))
    table_TD = np.empty((length, d_model), np.float32)
    table_TD[:, 0::2], table_TD[:, 1::2] = np.sin(angle_TD), np.cos(angle_TD[:, : d_model // 2])
    return table_TD

"""What a weights file may contain."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.models.tensor_file import TensorFile

Precision = Literal["float32", "int8"]
"""The data type of the stored matrices; everything else is float32."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
LARGEST = ".largest"
"""Suffix of the name of the tensor stored with an int8 matrix: the largest magnitude of each row."""

Shapes = dict[str, tuple[int, ...]]

_REAL = ("F16", "BF16", "F32", "F64")


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether this is the matrix of a linear layer or the embedding, in contrast to learned positions, for example."""
    return len(shape) == 2 and name.endswith(("weight", "weight_VD"))


def stored_shapes(weights: Mapping[str, tuple[int, ...]], precision: Precision) -> Shapes:
    """The shapes of all tensors stored for weights of these shapes."""
    matrices = {name: shape for name, shape in weights.items() if precision == "int8" and is_matrix(name, shape)}
    return {**weights, **{name + LARGEST: shape[:1] for name, shape in matrices.items()}}


def open_weights(path: Path, precision: Precision = "float32") -> TensorFile:
    """A weights file; each tensor must have the data type of this precision."""
    # In memory, every weight takes four bytes.
    require_file(path, physical_memory() // (4 if precision == "int8" else 1), "this machine has memory for")
    file = TensorFile(path)
    for name, dtype in file.types.items():
        quantised = precision == "int8" and is_matrix(name, file.shapes[name])
        if dtype not in (("I8",) if quantised else _REAL):
            wanted = "int8" if quantised else "real numbers"
            raise ModelError(f"{path}: {name[:80]} is of type {dtype}, not of {wanted}")
    return file


def count_parameters(path: Path, precision: Precision) -> int:
    """Number of parameters in a weights file."""
    shapes = open_weights(path, precision).shapes
    return sum(math.prod(shape) for name, shape in shapes.items() if not name.endswith(LARGEST))


def physical_memory() -> int:
    """Bytes of physical memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

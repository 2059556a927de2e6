"""The numbers of a model as they are stored, without numpy and torch: bytes, and what they mean."""

import ctypes
import mmap
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from transduce.models.model import Model

FEWEST_ON_GRID = 16
"""Weights of a row of which it is no coincidence that they are multiples of one number (models/int8.py)."""
_LARGE_PAGES_FROM = 1 << 22


class Block:
    """Memory of a fixed address, all zeros at first; a page takes memory of the machine only when it is written."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Bytes."""
        self._memory = new_memory(max(size, 1))
        self.content = memoryview(self._memory)[:size]
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))


def new_memory(size: int) -> mmap.mmap | bytearray:
    """Memory for a block; with large pages, weights are read faster."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _LARGE_PAGES_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def zeros(code: str, size: int) -> "array[Any]":
    """An array of zeros of a type of `array`, without room for more."""
    return array(code, [0]) * size


class RawTensor(NamedTuple):
    """The bytes of a tensor."""

    dtype: str
    """By its name in safetensors."""
    shape: tuple[int, ...]
    content: memoryview
    origin: str | None = None
    """Its file and name, if its values are untrusted: they must be finite."""


class Int8Matrix(NamedTuple):
    """A matrix of 8-bit integers, as `models/int8.py` describes it; its weights are about q * largest / 127."""

    q_NK: RawTensor
    largest_N: RawTensor
    """The largest magnitude of each row."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.q_NK.shape


Array = RawTensor | Int8Matrix
Arrays = Mapping[str, Array]
"""Weights by name; matrices are real numbers, or 8-bit integers if the model is stored so."""


def concatenated(matrices: Sequence[Array]) -> Array:
    """The rows of several matrices, which are all stored in the same way."""
    integers = [matrix for matrix in matrices if isinstance(matrix, Int8Matrix)]
    if integers:
        return Int8Matrix(joined([one.q_NK for one in integers]), joined([one.largest_N for one in integers]))
    return joined([matrix for matrix in matrices if isinstance(matrix, RawTensor)])


def joined(tensors: Sequence[RawTensor]) -> RawTensor:
    """The rows of several tensors of one type."""
    rows = sum(tensor.shape[0] for tensor in tensors)
    content = memoryview(bytearray(b"".join(tensor.content for tensor in tensors)))
    return tensors[0]._replace(shape=(rows, *tensors[0].shape[1:]), content=content)


def module_arrays(model: "Model") -> Arrays:
    """The weights of a torch module; those in float32 on a CPU are not copied."""
    tensors = {name: x.detach().float().cpu().contiguous() for name, x in model.state_dict().items()}
    return {name: RawTensor("F32", tuple(x.shape), x.flatten().numpy().data.cast("B")) for name, x in tensors.items()}

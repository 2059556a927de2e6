"""Weights files: tensors in the format safetensors, read without numpy and torch, which its library needs.

A matrix of a model in 8 bits is stored as integers with the largest magnitude of each row (`models/weight_tensors.py`).
"""

import ctypes
import json
import math
import mmap
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from transduce.disk import require_file
from transduce.errors import ModelError

Precision = Literal["float32", "int8"]
"""The data type of the stored matrices; everything else is float32."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
LARGEST = ".largest"
"""Suffix of the name of the tensor stored with an int8 matrix: the largest magnitude of each row."""
FEWEST_ON_GRID = 16
"""Weights of a row of which it is no coincidence that they are multiples of one number (models/weight_tensors.py)."""
Shapes = dict[str, tuple[int, ...]]

_REAL = ("F16", "BF16", "F32", "F64")
_HEADER_BYTES = 1 << 23
_DIMENSIONS = 8
_LARGE_PAGES_FROM = 1 << 22
_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL"), 1),
}
"""The size of a number of each data type."""


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
    dtype: str
    """By its name in safetensors."""
    shape: tuple[int, ...]
    content: memoryview
    origin: str | None = None
    """Its file and name, if its values are untrusted: they must be finite."""


class Int8Matrix(NamedTuple):
    """A matrix of 8-bit integers; its weights are about q * largest / 127."""

    q_NK: RawTensor
    largest_N: RawTensor
    """The largest magnitude of each row."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.q_NK.shape


Array = RawTensor | Int8Matrix
Arrays = Mapping[str, Array]
"""Weights by name; matrices are real numbers, or 8-bit integers if the model is stored so."""


def concatenated(matrices: Sequence[Array]) -> Array:
    """The rows of several matrices, which are all stored in the same way."""
    integers = [matrix for matrix in matrices if isinstance(matrix, Int8Matrix)]
    if integers:
        return Int8Matrix(*(joined(parts) for parts in zip(*integers, strict=True)))
    return joined([matrix for matrix in matrices if isinstance(matrix, RawTensor)])


def joined(tensors: Sequence[RawTensor]) -> RawTensor:
    rows = sum(tensor.shape[0] for tensor in tensors)
    content = memoryview(bytearray(b"".join(tensor.content for tensor in tensors)))
    return tensors[0]._replace(shape=(rows, *tensors[0].shape[1:]), content=content)


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class TensorFile:
    """The tensors of a file by name; each is read when it is used.

    The file stays open, so that another file of that name, as that of a run that continues, is not mixed with it.
    """

    def __init__(self, path: Path) -> None:
        """Read the header, which is untrusted."""
        self.path = path
        try:
            self._file = path.open("rb", buffering=0)
            size, available = int.from_bytes(self._file.read(8), "little"), os.fstat(self._file.fileno()).st_size - 8
            if size > min(_HEADER_BYTES, available):
                raise ModelError(f"{path}: cannot be read: not safetensors, or damaged: its header has {size:,} bytes")
            self._start = 8 + size
            header = json.loads(self._file.read(size))
            self.metadata = dict[str, str](header.pop("__metadata__", {}))
            self._entries = {name: _entry(table) for name, table in header.items()}
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ModelError(f"{path}: cannot be read: not safetensors, or damaged: {error}") from None
        end = 0
        for name, entry in sorted(self._entries.items(), key=lambda item: item[1][2:]):
            if entry.begin != end or entry.end - end != math.prod(entry.shape) * _BYTES[entry.dtype]:
                raise ModelError(f"{path}: cannot be read: damaged: the place of {name[:80]} does not fit its shape")
            end = entry.end
        if end != available - size:
            raise ModelError(
                f"{path}: cannot be read: damaged: it has {available - size:,} bytes of tensors, not {end:,}"
            )
        self._modified = os.fstat(self._file.fileno()).st_mtime_ns
        self.types = {name: entry.dtype for name, entry in self._entries.items()}
        """The data type of each tensor, by its name in safetensors."""
        self.shapes: Shapes = {name: entry.shape for name, entry in self._entries.items()}

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # unless it could not be opened
            self._file.close()

    def read(self, name: str) -> RawTensor:
        dtype, shape, begin, end = self._entries[name]
        content, read = Block(end - begin).content, 0
        while read < len(content):  # a system call reads at most 2 GiB
            more = os.preadv(self._file.fileno(), [content[read:]], self._start + begin + read)
            if not more or os.fstat(self._file.fileno()).st_mtime_ns != self._modified:
                raise ModelError(f"{self.path}: {name[:80]} cannot be read; the file has changed or is damaged")
            read += more
        return RawTensor(dtype, shape, content, f"{self.path}: {name}")


def _entry(table: Any) -> _Entry:
    shape, (begin, end) = tuple(table["shape"]), table["data_offsets"]
    are_sizes = len(shape) <= _DIMENSIONS and all(type(n) is int and 0 <= n < 1 << 63 for n in (*shape, begin, end))
    if table["dtype"] not in _BYTES or not are_sizes:
        raise ValueError("a tensor has an unknown data type, shape or place")
    return _Entry(table["dtype"], shape, begin, end)


class WeightsFile(Mapping[str, Array]):
    """The weights of a model by name; each is read when it is used."""

    def __init__(self, path: Path, precision: Precision = "float32") -> None:
        """Read the header, which is untrusted: each tensor must have the data type of this precision."""
        self.path, self.precision = path, precision
        # In memory, every weight takes four bytes.
        require_file(path, physical_memory() // (4 if precision == "int8" else 1), "this machine has memory for")
        self._file = TensorFile(path)
        self.stored_shapes = self._file.shapes
        for name, dtype in self._file.types.items():
            quantised = self._is_quantised(name, self.stored_shapes[name])
            if dtype not in (("I8",) if quantised else _REAL):
                wanted = "int8" if quantised else "real numbers"
                raise ModelError(f"{path}: {name[:80]} is of type {dtype}, not of {wanted}")

    def __getitem__(self, name: str) -> Array:
        if self._is_quantised(name, self.stored_shapes[name]):
            return Int8Matrix(self._file.read(name), self._file.read(name + LARGEST))
        return self._file.read(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.stored_shapes if self.precision != "int8" or not name.endswith(LARGEST))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def require_shapes(self, expected: Shapes) -> None:
        """Raise an error unless the file has tensors of these names and shapes, and no others."""
        quantised = {name: shape for name, shape in expected.items() if self._is_quantised(name, shape)}
        wanted = {**expected, **{name + LARGEST: shape[:1] for name, shape in quantised.items()}}
        if self.stored_shapes != wanted:
            name = min(set(wanted.items()) ^ set(self.stored_shapes.items()))[0]
            actual, required = self.stored_shapes.get(name, "missing"), wanted.get(name, "absent")
            raise ModelError(f"{self.path}: does not fit model.json: {name[:80]} is {actual}, but should be {required}")

    def _is_quantised(self, name: str, shape: tuple[int, ...]) -> bool:
        return self.precision == "int8" and is_matrix(name, shape)


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether this is the matrix of a linear layer or the embedding, in contrast to learned positions, for example."""
    return len(shape) == 2 and name.endswith(("weight", "weight_VD"))


def count_parameters(path: Path, precision: Precision) -> int:
    shapes = WeightsFile(path, precision).stored_shapes
    return sum(math.prod(shape) for name, shape in shapes.items() if not name.endswith(LARGEST))


def physical_memory() -> int:
    """Bytes of physical memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

"""Files of tensors in the format safetensors, read without numpy and torch, which its library needs."""

import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

from transduce.errors import ModelError
from transduce.models.arrays import Block, RawTensor

_HEADER_BYTES = 1 << 23
_DIMENSIONS = 8
_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL"), 1),
}
"""The size of a number of each data type."""


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

    def __del__(self) -> None:
        """Close the file, if it could be opened."""
        if hasattr(self, "_file"):
            self._file.close()

    @property
    def types(self) -> dict[str, str]:
        """The data type of each tensor, by its name in safetensors."""
        return {name: entry.dtype for name, entry in self._entries.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor."""
        return {name: entry.shape for name, entry in self._entries.items()}

    def read(self, name: str) -> RawTensor:
        """The bytes of a tensor."""
        dtype, shape, begin, end = self._entries[name]
        content, read = Block(end - begin).content, 0
        while read < len(content):  # a system call reads at most 2 GiB
            more = os.preadv(self._file.fileno(), [content[read:]], self._start + begin + read)
            if not more:
                raise ModelError(f"{self.path}: {name[:80]} cannot be read; the file has changed or is damaged")
            read += more
        return RawTensor(dtype, shape, content, f"{self.path}: {name}")


def _entry(table: Any) -> _Entry:
    shape, (begin, end) = tuple(table["shape"]), table["data_offsets"]
    are_sizes = len(shape) <= _DIMENSIONS and all(type(n) is int and 0 <= n < 1 << 63 for n in (*shape, begin, end))
    if table["dtype"] not in _BYTES or not are_sizes:
        raise ValueError("a tensor has an unknown data type, shape or place")
    return _Entry(table["dtype"], shape, begin, end)

"""Marian's binary models, as those of Firefox Translations: arrays by name.

A file is a version and the number of arrays; the length of name, type, rank and size in bytes of each; all names, all
shapes, a gap, and the content of each, at a multiple of 256 bytes. A matrix of 8-bit integers is stored transposed, but
for the embeddings, and a number at its end says what 1.0 is.
"""

import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.models.weights_file import physical_memory

_MAX_ARRAYS, _MAX_RANK = 100_000, 8
_FLOATS, _INTEGERS, _INT8_MATRIX = 0x404, 0x101, 0x4101
"""Types of arrays."""
_ALIGNMENT = 256
_MULTIPLIED = re.compile(r"_W\w?$|Wemb$")
"""The names of matrices that are multiplied, which an 8-bit model has as integers."""
_TILE = (64, 8)
"""The rows and columns of a matrix of 8-bit integers are multiples of these."""


def read_binary(path: Path) -> dict[str, Any]:
    """The arrays of a file, which is untrusted; matrices of 8-bit integers as floats."""
    require_file(path, physical_memory() // 8, "this machine has memory for")
    content = path.read_bytes()
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        if len(content) - at < size:
            raise ValueError("it ends too early")
        at += size
        return content[at - size : at]

    def numbers(code: str, count: int) -> tuple[int, ...]:
        layout = f"<{count}{code}"
        return struct.unpack(layout, take(struct.calcsize(layout)))

    try:
        version, count = numbers("Q", 2)
        if version != 1 or count > _MAX_ARRAYS:
            raise ValueError(f"version {version} with {count:,} arrays")
        headers = [numbers("Q", 4) for _ in range(count)]
        if deep := [rank for _, _, rank, _ in headers if rank > _MAX_RANK]:
            raise ValueError(f"an array has {deep[0]:,} dimensions")
        names = [take(length)[:-1].decode() for length, *_ in headers]
        shapes = [numbers("i", rank) for _, _, rank, _ in headers]
        take(*numbers("Q", 1))  # a gap
        arrays = {
            name: _stored_array(name, kind, shape, take(size))
            for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True)
        }
    except (ValueError, struct.error, KeyError, UnicodeDecodeError, MemoryError) as error:
        raise ModelError(f"{path}: not a binary model of Marian, or damaged: {error}") from None
    return arrays


def _stored_array(name: str, kind: int, shape: tuple[int, ...], content: bytes) -> Any:
    if kind == _INTEGERS:
        return np.frombuffer(content, np.int8)
    size = math.prod(shape)
    if min(shape, default=0) < 1 or size > len(content):
        raise ValueError(f"{name:.60} has the shape {shape}")
    if kind == _FLOATS:
        return np.frombuffer(content, np.float32, size).reshape(shape)
    if kind != _INT8_MATRIX or len(shape) != 2:
        raise ValueError(f"{name:.60} is of the type {kind:#x}")
    integers = np.frombuffer(content, np.int8, size)
    one = np.frombuffer(content, np.float32, 1, size)[0]
    if not 0 < one < np.inf:
        raise ValueError(f"{name:.60} has the scale {one}")
    rows = integers.reshape(shape) if name.endswith("Wemb") else integers.reshape(shape[::-1]).T
    return rows.astype(np.float32) / one


def write_binary(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write an 8-bit model. Arrays of integers, which are texts, stay as they are, and so do vectors."""
    stored = [(name, array.shape, *_content(name, array)) for name, array in sorted(arrays.items())]
    header = [struct.pack("<2Q", 1, len(stored))]
    header += [struct.pack("<4Q", len(name.encode()) + 1, kind, len(shape), len(x)) for name, shape, kind, x in stored]
    header += [name.encode() + b"\0" for name, *_ in stored]
    header += [struct.pack(f"<{len(shape)}i", *shape) for _, shape, *_ in stored]
    gap = -(sum(map(len, header)) + 8) % _ALIGNMENT
    path.write_bytes(b"".join([*header, struct.pack("<Q", gap), bytes(gap), *(x for *_, x in stored)]))


def _content(name: str, array: npt.NDArray[Any]) -> tuple[int, bytes]:
    """The type of an array in a file, and its content."""
    if array.dtype == np.int8:
        return _INTEGERS, array.tobytes()  # the last one by name, so that it need not be aligned
    kind, content = _FLOATS, array.astype(np.float32).tobytes()
    if _MULTIPLIED.search(name):
        matrix = array if name.endswith("Wemb") else array.T  # (outputs, inputs)
        if matrix.shape[1] % _TILE[0] or matrix.shape[0] % _TILE[1]:
            raise ModelError(
                f"8-bit products of Marian need inputs in multiples of {_TILE[0]} and outputs in multiples of "
                f"{_TILE[1]}; {name} has {matrix.shape[1]} and {matrix.shape[0]} (model.d_model, model.d_ff and "
                "tokenizer.vocab_size decide)"
            )
        one = np.float32(127 / max(float(np.abs(matrix).max()), 1e-30))
        kind, content = _INT8_MATRIX, np.rint(matrix * one).astype(np.int8).tobytes() + one.tobytes()
    return kind, content + bytes(-len(content) % _ALIGNMENT)

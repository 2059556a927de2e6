"""Files of tensors: as safetensors writes them, and damaged or hostile ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from transduce.errors import ModelError
from transduce.models.weights_file import TensorFile

ONE: dict[str, Any] = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def write(path: Path, header: Any, data: bytes = bytes(24)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_tensors_are_read_as_they_were_saved(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    arrays = {
        "b": draw.normal(size=(3, 5)).astype(np.float32),
        "a": draw.integers(-128, 128, (7,)).astype(np.int8),
        "none": np.zeros((0, 4), np.float64),
        "scalar": np.array(3.5),
        "c": draw.integers(0, 9, (2, 1, 2)).astype(np.int32),
    }
    save_file(arrays, tmp_path / "x", {"about": "äöü"})
    file = TensorFile(tmp_path / "x")
    assert file.metadata == {"about": "äöü"}
    assert file.shapes == {name: array.shape for name, array in arrays.items()}
    assert file.types == {"b": "F32", "a": "I8", "none": "F64", "scalar": "F64", "c": "I32"}
    for name, array in arrays.items():
        tensor = file.read(name)
        assert bytes(tensor.content) == array.tobytes()
        assert tensor.origin == f"{tmp_path / 'x'}: {name}"


def test_a_file_that_is_replaced_is_not_mixed_with_the_new_one(tmp_path: Path) -> None:
    file = TensorFile(write(tmp_path / "x", {"a": ONE}, bytes(range(24))))
    write(tmp_path / "new", {"a": ONE}).replace(tmp_path / "x")
    assert bytes(file.read("a").content) == bytes(range(24))


def test_a_file_that_was_shortened_meanwhile_is_an_error(tmp_path: Path) -> None:
    file = TensorFile(write(tmp_path / "x", {"a": ONE}))
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-1])
    with pytest.raises(ModelError, match="x: a cannot be read; the file has changed or is damaged"):
        file.read("a")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        [],
        {"a": []},
        {"a": {}},
        {"a": ONE | {"dtype": "F31"}},
        {"a": ONE | {"dtype": ["F32"]}},
        {"a": ONE | {"dtype": "F64"}},
        {"a": ONE | {"shape": 6}},
        {"a": ONE | {"shape": [2, 4]}},
        {"a": ONE | {"shape": [-2, -3]}},
        {"a": ONE | {"shape": [2.0, 3]}},
        {"a": ONE | {"shape": [True, 6]}},
        {"a": ONE | {"shape": [2**64] * 9}},
        {"a": ONE | {"shape": [6, *[1] * 8]}},
        {"a": ONE | {"data_offsets": [0]}},
        {"a": ONE | {"data_offsets": [24, 0]}},
        {"a": ONE | {"data_offsets": [1, 25]}},
        {"a": ONE | {"data_offsets": [0, 20], "shape": [5]}},
        {"a": ONE, "b": ONE},
        {"a": ONE | {"data_offsets": [0, 8], "shape": [2]}, "b": ONE | {"data_offsets": [12, 24], "shape": [3]}},
        {"__metadata__": 5, "a": ONE},
        {"__metadata__": {"x": 1}},
    ],
)
def test_damaged_headers_are_refused(header: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"x: cannot be read: .*damaged: ") as refused:
        TensorFile(write(tmp_path / "x", header))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"1234567", b"x" * 100, (2**62).to_bytes(8, "little")])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ModelError, match="x: cannot be read: not safetensors, or damaged: "):
        TensorFile(tmp_path / "x")

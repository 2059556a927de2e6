"""Models of other toolkits to be damaged: random weights, a vocabulary, and changes of their files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

Arrays = dict[str, Any]


def random_arrays(shapes: dict[str, tuple[int, ...]]) -> Arrays:
    """Weights of these shapes."""
    generator = np.random.default_rng(1)
    return {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def byte_level(*special: str) -> Any:
    """A vocabulary of bytes, one pair of them, and special tokens at the end."""
    tokenizers: Any = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: number for number, piece in enumerate([*alphabet, "ab", "<|endoftext|>", *special])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [("a", "b")]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def copy(original: Path, name: Path) -> Path:
    """A copy of a folder or file, which keeps its suffix."""
    if original.is_dir():
        return Path(shutil.copytree(original, name))
    return Path(shutil.copy(original, name.with_suffix(original.suffix)))


def edit_json(name: str, **values: object) -> Callable[[Path], None]:
    """Replace values of a JSON file."""

    def change(folder: Path) -> None:
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(settings | values))

    return change


def edit_weights(**changes: Any) -> Callable[[Path], None]:
    """Replace arrays of model.safetensors; in names, __ is a dot."""

    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights |= {name.replace("__", "."): array for name, array in changes.items()}
        save_file(weights, folder / "model.safetensors")

    return change

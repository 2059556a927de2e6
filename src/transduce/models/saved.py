"""Saving and loading the model folders that `card.py` describes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from transduce.config import to_table
from transduce.disk import atomic_folder
from transduce.errors import ConfigError, ModelError
from transduce.fast.native.shortlist import load_shortlist
from transduce.files.languages import describe_directions
from transduce.models.arrays import Array, Int8Matrix, RawTensor
from transduce.models.card import (
    CARD,
    FORMAT,
    NOTES,
    WEIGHTS,
    card_text,
    read_notes,
)
from transduce.models.header import Precision
from transduce.models.int8 import from_int8, to_int8
from transduce.models.model import Model
from transduce.models.registry import create_model
from transduce.models.stored import StoredModel, StoredWeights, read_model
from transduce.nn.skip_initialization import SkipInitialization
from transduce.tokenizers.any_tokenizer import AnyTokenizer

_TYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "I8": torch.int8}


@dataclass(frozen=True)
class SavedModel:
    """The content of a model folder."""

    model: Model
    tokenizer: AnyTokenizer
    facts: dict[str, Any]
    """Metadata: data, steps, scores, the longest input in training."""


def save_model(
    folder: Path, model: Model, tokenizer: AnyTokenizer, facts: dict[str, Any], precision: Precision = "float32"
) -> None:
    """Write a model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = to_table(model.config)
    card = {
        "format": FORMAT,
        "architecture": settings.pop("architecture"),
        "vocab_size": model.vocab_size,
        "precision": precision,
        "model": settings,
        "facts": facts,
    }
    weights = {name: x.detach() for name, x in model.state_dict().items()}
    save_tensors(to_int8(weights) if precision == "int8" else weights, folder / WEIGHTS)
    (folder / tokenizer.file_name).write_bytes(tokenizer.model)
    (folder / CARD).write_text(card_text(card), encoding="utf-8")


def save_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors by name; raises OSError if the disk is full."""
    path.touch()
    mode = path.stat().st_mode  # the default mode; safetensors would make the file private
    try:
        save_file({name: x.contiguous() for name, x in tensors.items()}, path)
        path.chmod(mode)
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from None


def load_model(folder: Path, device: torch.device | str = "cpu") -> SavedModel:
    """Read a model folder, which is untrusted: inconsistent sizes are refused before anything is allocated."""
    stored = read_model(folder)
    return SavedModel(build_module(stored, device), stored.tokenizer, stored.facts)


def build_module(stored: StoredModel, device: torch.device | str = "cpu") -> Model:
    """The torch module of a model folder."""
    try:
        with SkipInitialization():
            model = create_model(stored.config, stored.vocab_size)
    except ConfigError as error:
        raise ModelError(f"{stored.weights.path.with_name(CARD)}: {error}") from None
    model.load_state_dict(_tensors(stored.weights, model.state_dict()))
    return model.to(device).eval()


def read_weights(
    path: Path, expected: Mapping[str, torch.Tensor], precision: Precision = "float32"
) -> dict[str, torch.Tensor]:
    """Read the weights of a safetensors file; names and shapes must be as expected, and all values finite."""
    return _tensors(StoredWeights(path, precision), expected)


def _tensors(weights: StoredWeights, expected: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    weights.require_shapes({name: tuple(x.shape) for name, x in expected.items()})
    return {name: _tensor(x) for name, x in weights.items()}


def _tensor(stored: Array) -> torch.Tensor:
    """The weights in float32."""
    if isinstance(stored, Int8Matrix):
        return from_int8(_as_stored(stored.q_NK), _finite(stored.largest_N))
    return _finite(stored)


def _finite(stored: RawTensor) -> torch.Tensor:
    x = _as_stored(stored).float()
    if x.numel() and not torch.stack(torch.aminmax(x)).isfinite().all():
        raise ModelError(f"{stored.origin} contains values that are not finite numbers")
    return x


def _as_stored(stored: RawTensor) -> torch.Tensor:
    """The tensor, which shares the memory of its bytes."""
    dtype = _TYPES[stored.dtype]
    return (
        torch.frombuffer(stored.content, dtype=dtype).view(stored.shape)
        if stored.content
        else torch.zeros(stored.shape)
    )


def require_combinable(folder: Path, saved: SavedModel, other_folder: Path, other: SavedModel) -> None:
    """Raise an error unless both models have the same tokens with the same ids on both sides and a common direction."""
    vocabularies = [
        [side.pieces(range(side.vocab_size)) for side in (one.tokenizer, one.tokenizer.target)]
        for one in (saved, other)
    ]
    if vocabularies[0] != vocabularies[1]:
        raise ModelError(
            f"{folder} and {other_folder} have different vocabularies; name models that were trained with the same one"
        )
    directions, others = ([(a, b) for a, b in one.facts.get("directions", [])] for one in (saved, other))
    if directions and others and not {*directions} & {*others}:
        raise ModelError(
            f"{folder} translates {describe_directions(directions)}, and {other_folder} {describe_directions(others)}; "
            "name models of the same direction"
        )
    require_same_order(folder, saved.facts, other_folder, other.facts)


def require_same_order(folder: Path, facts: dict[str, Any], other_folder: Path, other: dict[str, Any]) -> None:
    """Raise an error if two models do not both tell their languages, and only one was trained with data.reverse."""
    orders = {one["reverse"] is True for one in (facts, other) if "reverse" in one}
    if len(orders) > 1 and not (facts.get("directions") and other.get("directions")):
        raise ModelError(
            f"{folder} and {other_folder} translate in opposite directions, as only one of them was trained with "
            "data.reverse; name models of the same direction"
        )


def shrink_model(folder: Path, out: Path) -> None:
    """Write a model folder with 8-bit weights, and its README and shortlist, atomically as a new folder."""
    if out.exists():
        raise ModelError(f"{out} exists already; name a folder that does not")
    saved = load_model(folder)
    with atomic_folder(out) as work:
        save_model(work, saved.model, saved.tokenizer, saved.facts, precision="int8")
        if notes := read_notes(folder):
            (work / NOTES).write_text(notes, encoding="utf-8")
        if shortlist := load_shortlist(folder, saved.tokenizer):
            shortlist.save(work, saved.tokenizer)

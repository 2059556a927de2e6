"""Saving and loading the model folders that `card.py` describes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from transduce.config import to_table
from transduce.disk import MANIFEST, atomic_folder, damaged_file
from transduce.errors import ConfigError, ModelError
from transduce.models.card import (
    CARD,
    FORMAT,
    IMPORTED_TOKENIZER,
    NOTES,
    TOKENIZER,
    WEIGHTS,
    card_text,
    read_card,
    read_notes,
)
from transduce.models.header import Precision, stored_shapes, weight_shapes
from transduce.models.int8 import from_int8, to_int8
from transduce.models.model import Model
from transduce.models.registry import build_config, create_model
from transduce.nn.skip_initialization import SkipInitialization
from transduce.text.any_tokenizer import AnyTokenizer, load_tokenizer


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
    is_checkpoint = (folder / MANIFEST).exists()
    vocabulary = IMPORTED_TOKENIZER if (folder / IMPORTED_TOKENIZER).exists() else TOKENIZER
    if is_checkpoint and (damage := damaged_file(folder, (CARD, WEIGHTS, vocabulary), others=False)):
        raise ModelError(f"{damage[0]} {damage[1]}; name another checkpoint of the run, or continue its training")
    card = read_card(folder)
    shapes = weight_shapes(folder / WEIGHTS, card["precision"])
    tokenizer = load_tokenizer(folder)
    if card["vocab_size"] != tokenizer.vocab_size:
        stated, actual = _count(card["vocab_size"]), _count(tokenizer.vocab_size)
        raise ModelError(f"{folder / CARD}: vocab_size is {stated}, but {vocabulary} has {actual} tokens")
    try:
        config = build_config(card["architecture"], card["model"], str(folder / CARD))
    except ConfigError as error:
        raise ModelError(str(error)) from None
    required, stored = config.min_parameters(tokenizer.vocab_size), sum(map(math.prod, shapes.values()))
    if required > stored:
        raise ModelError(
            f"{folder / WEIGHTS}: does not fit {CARD}: it has {stored:,} weights, but at least {_count(required)} "
            "are expected"
        )
    with SkipInitialization():
        model = create_model(config, tokenizer.vocab_size)
    model.load_state_dict(read_weights(folder / WEIGHTS, model.state_dict(), card["precision"]))
    return SavedModel(model.to(device).eval(), tokenizer, card["facts"])


def read_weights(
    path: Path, expected: Mapping[str, torch.Tensor], precision: Precision = "float32"
) -> dict[str, torch.Tensor]:
    """Read the weights of a safetensors file; names and shapes must be as expected, and all values finite."""
    stored = weight_shapes(path, precision)
    wanted = stored_shapes({name: tuple(x.shape) for name, x in expected.items()}, precision)
    if stored != wanted:
        name = min(set(wanted.items()) ^ set(stored.items()))[0]
        actual, required = stored.get(name, "missing"), wanted.get(name, "absent")
        raise ModelError(f"{path}: does not fit {CARD}: {name[:80]} is {actual}, but should be {required}")
    weights = from_int8(load_file(path)) if precision == "int8" else load_file(path)
    weights = {name: x.float() for name, x in weights.items()}  # a float64 value may become infinite
    for name, x in weights.items():
        if not all(edge.isfinite() for edge in x.aminmax()):
            raise ModelError(f"{path}: {name} contains values that are not finite numbers")
    return weights


def require_same_vocabulary(folder: Path, saved: SavedModel, other_folder: Path, other: SavedModel) -> None:
    """Raise an error unless both models have the same tokens with the same ids."""
    ours, theirs = (one.tokenizer.pieces(range(one.tokenizer.vocab_size)) for one in (saved, other))
    if ours != theirs:
        raise ModelError(
            f"{folder} and {other_folder} have different vocabularies; name models that were trained with the same one"
        )


def shrink_model(folder: Path, out: Path) -> None:
    """Write a model folder with 8-bit weights, and a copy of its README, atomically as a new folder."""
    if out.exists():
        raise ModelError(f"{out} exists already; name a folder that does not")
    saved = load_model(folder)
    with atomic_folder(out) as work:
        save_model(work, saved.model, saved.tokenizer, saved.facts, precision="int8")
        if notes := read_notes(folder):
            (work / NOTES).write_text(notes, encoding="utf-8")


def _count(number: int) -> str:
    return f"{number:,}" if abs(number) < 10**15 else "more than 10^15"

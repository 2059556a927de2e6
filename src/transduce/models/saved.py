"""Models to and from the folders that `card.py` describes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from transduce.config import build, to_table
from transduce.errors import ConfigError, ModelError
from transduce.models.card import CARD, FORMAT, TOKENIZER, WEIGHTS, read_card
from transduce.models.encoder_decoder import EncoderDecoder, ModelConfig
from transduce.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class SavedModel:
    """What a model folder holds."""

    model: EncoderDecoder
    tokenizer: Tokenizer
    facts: dict[str, Any]
    """What is known of it beside its sizes: data, steps, scores, the longest input it was trained on."""


def save_model(folder: Path, model: EncoderDecoder, tokenizer: Tokenizer, facts: dict[str, Any]) -> None:
    """Write a model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    card = {
        "format": FORMAT,
        "architecture": "encoder_decoder",
        "vocab_size": model.vocab_size,
        "model": to_table(model.config),
        "facts": facts,
    }
    save_tensors({name: x.detach() for name, x in model.state_dict().items()}, folder / WEIGHTS)
    tokenizer.save(folder / TOKENIZER)
    (folder / CARD).write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def save_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors by their names; OSError where the disk does not take them."""
    try:
        save_file({name: x.contiguous() for name, x in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from None


def load_model(folder: Path, device: torch.device | str = "cpu") -> SavedModel:
    """Read a model folder."""
    card = read_card(folder)
    try:
        config = build(ModelConfig, card["model"], str(folder / CARD))
        model = EncoderDecoder(config, card["vocab_size"])
    except (KeyError, TypeError, ConfigError) as error:
        raise ModelError(f"{folder / CARD}: {error}") from None
    load_weights(model, folder / WEIGHTS)
    return SavedModel(model.to(device).eval(), Tokenizer.load(folder / TOKENIZER), card.get("facts", {}))


def load_weights(model: EncoderDecoder, path: Path) -> None:
    """Fill a model from a safetensors file that must hold exactly its tensors."""
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from None
    expected = {name: tuple(x.shape) for name, x in model.state_dict().items()}
    found = {name: tuple(x.shape) for name, x in weights.items()}
    if expected != found:
        name = min(set(expected.items()) ^ set(found.items()))[0]
        there, wanted = found.get(name, "missing"), expected.get(name, "not expected")
        raise ModelError(f"{path}: does not fit model.json: {name} is {there} there, {wanted} here")
    model.load_state_dict(weights)

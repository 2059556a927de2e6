"""What a model folder says of itself, readable without torch.

A folder holds `model.json` (the card), `model.safetensors` (weights) and `tokenizer.model`.
"""

import json
import math
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from transduce.errors import ModelError

CARD, WEIGHTS, TOKENIZER = "model.json", "model.safetensors", "tokenizer.model"
FORMAT = 1


def find_model(path: Path) -> Path:
    """The folder to load for a run (its finished model, else its newest checkpoint) or for a model folder."""
    if (path / CARD).exists():
        return path
    if (path / "model" / CARD).exists():
        return path / "model"
    checkpoints = [p for p in (path / "checkpoints").glob("step-*") if p.name.removeprefix("step-").isdigit()]
    if checkpoints:
        return max(checkpoints, key=lambda p: int(p.name.removeprefix("step-")))
    if not path.exists():
        raise ModelError(f"{path}: no such folder")
    raise ModelError(f"{path}: no model here yet; train one with: transduce train --out {path} ...")


def read_card(folder: Path) -> dict[str, Any]:
    """What `model.json` says."""
    path = folder / CARD
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{folder}: no model here (it has no {CARD})") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: {error}") from None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise ModelError(f"{path}: not a model of format {FORMAT}; was it written by a newer transduce?")
    for name, kind in (("architecture", str), ("vocab_size", int), ("model", dict), ("facts", dict)):
        if not isinstance(card.get(name), kind):
            raise ModelError(f"{path}: {name} is missing or of the wrong kind")
    return card


def count_parameters(folder: Path) -> int:
    """Numbers in the weights file, from its header alone."""
    try:
        with safe_open(folder / WEIGHTS, framework="np") as weights:
            return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{folder / WEIGHTS}: cannot be read: {error}") from None

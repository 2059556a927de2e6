"""What a model folder says of itself, readable without torch.

A folder holds `model.json` (the card), `model.safetensors` (weights) and `tokenizer.model`.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from transduce.errors import ModelError

CARD, WEIGHTS, TOKENIZER = "model.json", "model.safetensors", "tokenizer.model"
FORMAT = 1

# A folder may come from anywhere, so nothing in it is read, allocated or computed before its size is known to be sane.
_CARD_BYTES, _HEADER_BYTES = 1 << 22, 1 << 23
_LONGEST = 1 << 16
_DTYPES = ("F16", "BF16", "F32", "F64")


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
    if not path.exists():
        raise ModelError(f"{folder}: no model here (it has no {CARD})")
    require_file(path, _CARD_BYTES, "any card has")
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ModelError(f"{path}: nested too deeply to be a model's") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: {error}") from None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise ModelError(f"{path}: not a model of format {FORMAT}; was it written by a newer transduce?")
    for name, kind in (("architecture", str), ("vocab_size", int), ("model", dict), ("facts", dict)):
        if not isinstance(card.get(name), kind):
            raise ModelError(f"{path}: {name} is missing or of the wrong kind")
    facts = card["facts"]
    max_length = facts.get("max_length", 1)
    if not isinstance(max_length, int) or not 1 <= max_length <= _LONGEST:
        raise ModelError(f"{path}: facts.max_length must be between 1 and {_LONGEST}, not {max_length!r:.40}")
    for name in ("search", "data", "scores"):
        if not isinstance(facts.get(name, {}), dict):
            raise ModelError(f"{path}: facts.{name} is of the wrong kind")
    return card


def require_file(path: Path, most_bytes: int, limit: str) -> None:
    """Refuse what is no plain file (a device would never end) and what is larger than the limit."""
    if not path.is_file():
        raise ModelError(f"{path}: {'not a plain file' if path.exists() else 'no such file'}")
    if (size := path.stat().st_size) > most_bytes:
        raise ModelError(f"{path}: {size:,} bytes are more than {limit}")


def weight_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a weights file, from its header alone."""
    require_file(path, physical_memory(), "the memory of this machine")
    try:
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
        if header > _HEADER_BYTES:
            raise ModelError(f"{path}: not safetensors, or damaged: its header would have {header:,} bytes")
        with safe_open(path, framework="np") as weights:
            slices = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118
            for name, tensor in slices.items():
                if tensor.get_dtype() not in _DTYPES:
                    raise ModelError(f"{path}: {name[:80]} is of type {tensor.get_dtype()}, not of real numbers")
            return {name: tuple(tensor.get_shape()) for name, tensor in slices.items()}
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from None


def physical_memory() -> int:
    """Bytes of memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def count_parameters(folder: Path) -> int:
    """Numbers in the weights file, from its header alone."""
    return sum(math.prod(shape) for shape in weight_shapes(folder / WEIGHTS).values())

"""The metadata of a model folder, readable without torch.

A folder holds `model.json` (the card), `model.safetensors` (weights), the tokenizer (`tokenizer.model`,
`tokenizer.json` of an imported model, or `tokenizers.json` if source and target have one each) and optionally
`shortlist.safetensors` (`shortlist.py`) and `README.md`, a description of its data, licence, scores and limitations.
"""

import json
from pathlib import Path
from typing import Any

from transduce.disk import require_file, write_atomically
from transduce.errors import ModelError
from transduce.files.languages import is_language_code
from transduce.models.header import PRECISIONS

CARD, WEIGHTS, TOKENIZER, NOTES = "model.json", "model.safetensors", "tokenizer.model", "README.md"
IMPORTED_TOKENIZER, TOKENIZERS, SHORTLIST = "tokenizer.json", "tokenizers.json", "shortlist.safetensors"
MODEL_FILES = (CARD, WEIGHTS, TOKENIZER, IMPORTED_TOKENIZER, TOKENIZERS, SHORTLIST, NOTES)
FORMAT = 1
BUNDLED = Path(__file__).parents[1] / "bundled" / "en-de-fr"
"""The model that ships with the package."""

# A folder is untrusted: nothing in it is read, allocated or computed before its size is checked.
_CARD_BYTES = 1 << 22
_LONGEST = 1 << 16


def find_model(path: Path | None) -> Path:
    """The folder to load for a run (its finished model, otherwise its newest checkpoint) or a model folder.

    None is the bundled model.
    """
    if path is None:
        if not BUNDLED.exists():
            raise ModelError("no model named, and this installation has no bundled model; name a run or a model (-m)")
        return BUNDLED
    if (path / CARD).exists():
        return path
    if (path / "model" / CARD).exists():
        return path / "model"
    checkpoints = [p for p in (path / "checkpoints").glob("step-*") if p.name.removeprefix("step-").isdigit()]
    if checkpoints:
        return max(checkpoints, key=lambda p: int(p.name.removeprefix("step-")))
    if not path.exists():
        raise ModelError(f"{path}: no such folder")
    if path.suffix == ".gguf" or (path / "config.json").exists():
        raise ModelError(f"{path} is a model of another toolkit; import it first: transduce import {path} --out DIR")
    if not path.is_dir():
        raise ModelError(f"{path} is a file; name the folder of a run or of a model")
    raise ModelError(f"{path}: no model here yet; train one with: transduce train --out {path} ...")


def read_card(folder: Path, name: str = CARD) -> dict[str, Any]:
    """Read and check `model.json`, or a card with another name; `precision` defaults to float32."""
    path = folder / name
    if not path.exists():
        raise ModelError(f"{folder}: no model here (it has no {name})")
    require_file(path, _CARD_BYTES, "a card may have")
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ModelError(f"{path}: nested too deeply") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: {error}") from None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise ModelError(f"{path}: not a model of format {FORMAT}; was it written by a newer transduce?")
    for name, kind in (("architecture", str), ("vocab_size", int), ("model", dict), ("facts", dict)):
        if not isinstance(card.get(name), kind):
            raise ModelError(f"{path}: {name} is missing or has the wrong type")
    if card.setdefault("precision", "float32") not in PRECISIONS:
        raise ModelError(f"{path}: precision must be one of {', '.join(PRECISIONS)}, not {card['precision']!r:.40}")
    facts = card["facts"]
    max_length = facts.get("max_length", 1)
    if type(max_length) is not int or not 1 <= max_length <= _LONGEST:  # True is an int, too
        raise ModelError(f"{path}: facts.max_length must be between 1 and {_LONGEST}, not {max_length!r:.40}")
    if not isinstance(facts.get("task", ""), str):
        raise ModelError(f"{path}: facts.task has the wrong type")
    for name in ("search", "tokenizer", "data", "scores", "confidence", "transcribe", "augment"):
        if not isinstance(facts.get(name, {}), dict):
            raise ModelError(f"{path}: facts.{name} has the wrong type")
    directions = facts.get("directions", [])
    if not _are_directions(directions) or (facts.get("tagged") and not directions):
        raise ModelError(f"{path}: facts.directions must be a list of pairs of language codes")
    default_to = facts.get("default_to")
    if default_to is not None and default_to not in [target for _, target in directions]:
        raise ModelError(f"{path}: facts.default_to must be a target language of the model, not {default_to!r:.40}")
    return card


def _are_directions(value: Any) -> bool:
    pairs = value if isinstance(value, list) else [None]
    return all(isinstance(pair, list) and len(pair) == 2 and all(map(_is_code, pair)) for pair in pairs)


def _is_code(value: Any) -> bool:
    return isinstance(value, str) and is_language_code(value)


def write_fact(folder: Path, name: str, value: Any) -> None:
    """Set one of the facts of a model's card, which is replaced in one step."""
    card = read_card(folder)
    card["facts"][name] = value
    write_atomically(folder / CARD, card_text(card).encode())


def card_text(card: dict[str, Any]) -> str:
    """The content of `model.json`."""
    return json.dumps(card, indent=1, ensure_ascii=False) + "\n"


def read_notes(folder: Path) -> str:
    """The content of `README.md`; empty if there is none."""
    path = folder / NOTES
    if not path.exists():
        return ""
    require_file(path, _CARD_BYTES, "a README may have")
    return path.read_text(encoding="utf-8", errors="replace")

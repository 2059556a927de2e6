"""Model folders, read without torch: settings, tokenizer, facts, and the weights as bytes.

A folder holds `model.json` (the card), `model.safetensors` (weights; or `adapter.safetensors`, low-rank updates of
another folder's weights, see `models/merged_weights.py`), the tokenizer (`tokenizer.model`,
`tokenizer.json` of an imported model, or `tokenizers.json` if source and target have one each) and optionally
`README.md` (a description of its data, licence, scores and limitations) and files of engines, such as
`shortlist.safetensors` (`fast/native/shortlist.py`).
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from transduce.config import build, to_table
from transduce.disk import MANIFEST, damaged_file, require_file, write_atomically
from transduce.errors import ConfigError, ModelError, needs_torch
from transduce.files.languages import describe_directions, directions_of, is_language_code
from transduce.models.config import DecoderOnlyConfig, EncoderDecoderConfig, ModelConfig
from transduce.models.merged_weights import ADAPTER, MergedWeights, find_base, read_base
from transduce.models.weights_file import PRECISIONS, Arrays, Precision, Shapes, WeightsFile
from transduce.tokenizers.any_tokenizer import (
    TOKENIZER_FILES,
    AnyTokenizer,
    TokenizerPair,
    load_tokenizer,
    tokenizer_file,
)

if TYPE_CHECKING:
    import torch

    from transduce.models.model import Model

T = TypeVar("T")
CARD, WEIGHTS, NOTES, SHORTLIST = "model.json", "model.safetensors", "README.md", "shortlist.safetensors"
MODEL_FILES = (CARD, WEIGHTS, ADAPTER, *TOKENIZER_FILES, SHORTLIST, NOTES)
FORMAT = 1
BUNDLED = Path(__file__).parents[1] / "bundled" / "en-de-fr"
"""The model that ships with the package."""

# A folder is untrusted: nothing in it is read, allocated or computed before its size is checked.
_CARD_BYTES = 1 << 22
_LONGEST = 1 << 16
_CONFIGS: dict[str, type[ModelConfig]] = {"encoder_decoder": EncoderDecoderConfig, "decoder_only": DecoderOnlyConfig}
"""The settings that are known without torch; those of other architectures are in models/registry.py."""


@dataclass(frozen=True, eq=False)
class ModelFolder:
    """The content of a model folder: an `AnyModel` that needs no torch until its module is used."""

    path: Path
    config: ModelConfig
    tokenizer: AnyTokenizer
    facts: dict[str, Any]
    """Metadata: data, steps, scores, the longest input in training."""
    weights: WeightsFile
    device_type: str = field(default="cpu", init=False)
    _side_files: dict[str, Any] = field(default_factory=dict, init=False)

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.target.vocab_size

    # What an encoder-decoder model can do is known without torch; other models are built to find out.

    @property
    def longest(self) -> int | None:
        return self.config.longest if isinstance(self.config, EncoderDecoderConfig) else self.module().longest

    @property
    def generates(self) -> bool:
        return isinstance(self.config, EncoderDecoderConfig) or self.module().generates

    @property
    def aligns(self) -> bool:
        return isinstance(self.config, EncoderDecoderConfig) or self.module().aligns

    @property
    def is_built(self) -> bool:
        return "_module" in self.__dict__

    @cached_property
    def _module(self) -> "Model":
        return self.build("cpu")

    def module(self) -> "Model":
        return self._module

    def build(self, device: "torch.device | str") -> "Model":
        """A new torch module of this model; an error in one line if torch is not installed."""
        with needs_torch():
            from transduce.models.registry import create_model
            from transduce.models.weight_tensors import weight_tensors
            from transduce.nn.skip_initialization import SkipInitialization
        try:
            with SkipInitialization():
                model = create_model(self.config, self.vocab_size)
        except ConfigError as error:
            raise ModelError(f"{self.path / CARD}: {error}") from None
        model.load_state_dict(weight_tensors(self.weights, model.state_dict()))
        return model.to(device).eval()

    def arrays(self, shapes: Shapes) -> Arrays:
        self.weights.require_shapes(shapes)
        return self.weights

    def side_file(self, name: str, read: Callable[[Path, AnyTokenizer], T]) -> T | None:
        if name not in self._side_files:
            path = self.path / name
            self._side_files[name] = read(path, self.tokenizer) if path.exists() else None
        return self._side_files[name]


@dataclass(frozen=True)
class SavedModel:
    """The torch module of one model folder or of several, with the vocabulary and the facts."""

    model: "Model"
    tokenizer: AnyTokenizer
    facts: dict[str, Any]


def save_model(
    folder: Path, model: "Model", tokenizer: AnyTokenizer, facts: dict[str, Any], precision: Precision = "float32"
) -> None:
    from transduce.models.weight_tensors import save_tensors, to_int8

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
    if model.base:
        card["base"] = model.base.table(folder)
    weights = {name: x.detach() for name, x in model.trained.state_dict().items()}
    save_tensors(to_int8(weights) if precision == "int8" else weights, weights_path(folder, card))
    (folder / tokenizer.file_name).write_bytes(tokenizer.model)
    (folder / CARD).write_text(card_text(card), encoding="utf-8")


def load_model(folder: Path, device: "torch.device | str" = "cpu") -> SavedModel:
    """Read a model folder and build its torch module."""
    content = read_model(folder)
    return SavedModel(content.build(device), content.tokenizer, content.facts)


def read_model(folder: Path) -> ModelFolder:
    """Read a model folder, which is untrusted: inconsistent sizes are refused before anything is allocated."""
    is_checkpoint = (folder / MANIFEST).exists()
    vocabulary = tokenizer_file(folder).name
    stored = ADAPTER if (folder / ADAPTER).exists() else WEIGHTS
    needed = (CARD, stored, vocabulary, *([SHORTLIST] if (folder / SHORTLIST).exists() else []))
    if is_checkpoint and (damage := damaged_file(folder, needed, others=False)):
        raise ModelError(f"{damage[0]} {damage[1]}; name another checkpoint of the run, or continue its training")
    card = read_card(folder)
    weights = read_weights_file(folder, card)
    tokenizer = load_tokenizer(folder)
    if card["vocab_size"] != tokenizer.target.vocab_size:
        stated, actual = _count(card["vocab_size"]), _count(tokenizer.target.vocab_size)
        raise ModelError(f"{folder / CARD}: vocab_size is {stated}, but {vocabulary} has {actual} tokens")
    config = _build_config(card["architecture"], card["model"], str(folder / CARD))
    _require_source_vocabulary(folder, config, tokenizer)
    required = config.min_parameters(tokenizer.target.vocab_size)
    count = sum(map(math.prod, weights.stored_shapes.values()))
    if required > count:
        raise ModelError(
            f"{weights.path}: does not fit {CARD}: it has {count:,} weights, but at least {_count(required)} "
            "are expected"
        )
    return ModelFolder(folder, config, tokenizer, card["facts"], weights)


def weights_path(folder: Path, card: Mapping[str, Any]) -> Path:
    """The file of the weights, or of low-rank updates of those of a base."""
    return folder / (ADAPTER if "base" in card else WEIGHTS)


def read_weights_file(folder: Path, card: Mapping[str, Any]) -> WeightsFile:
    """The weights of a folder, given its card: those of its base with its updates, if it has a base."""
    if "base" not in card:
        return WeightsFile(folder / WEIGHTS, card["precision"])
    base = read_base(card["base"], folder / CARD)
    place = find_base(base, folder, WEIGHTS, BUNDLED)
    return MergedWeights(folder / ADAPTER, place / WEIGHTS, read_card(place)["precision"], base.scale)


def _require_source_vocabulary(folder: Path, config: ModelConfig, tokenizer: AnyTokenizer) -> None:
    """Raise an error unless a vocabulary of the source's own has the size that the card states."""
    stated = getattr(config, "source_vocab_size", None)
    actual = tokenizer.vocab_size if isinstance(tokenizer, TokenizerPair) else None
    if stated != actual:
        sizes = ["none" if size is None else f"one of {_count(size)} tokens" for size in (actual, stated)]
        file = tokenizer_file(folder).name
        raise ModelError(
            f"{folder / CARD}: the source's own vocabulary (source_vocab_size) is {sizes[1]}, but {file} has {sizes[0]}"
        )


def _build_config(architecture: str, table: Mapping[str, Any], where: str) -> ModelConfig:
    try:
        if architecture in _CONFIGS:
            return build(_CONFIGS[architecture], {**table, "architecture": architecture}, where)
        with needs_torch():
            from transduce.models.registry import build_config

        return build_config(architecture, table, where)
    except ConfigError as error:
        raise ModelError(str(error)) from None


def _count(number: int) -> str:
    return f"{number:,}" if abs(number) < 10**15 else "more than 10^15"


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
    languages = facts.get("languages", {})
    if not isinstance(languages, dict) or not all(is_language_code(code) for code in languages):
        raise ModelError(f"{path}: facts.languages must be a table of names by language codes")
    if not _are_directions(facts.get("directions", [])):
        raise ModelError(f"{path}: facts.directions must be a list of pairs of language codes")
    directions = directions_of(facts)
    if facts.get("tagged") and not directions:
        raise ModelError(f"{path}: facts.directions must be a list of pairs of language codes")
    default_to = facts.get("default_to")
    if default_to is not None and default_to not in [target for _, target in directions]:
        raise ModelError(f"{path}: facts.default_to must be a target language of the model, not {default_to!r:.40}")
    return card


def _are_directions(value: Any) -> bool:
    pairs = value if isinstance(value, list) else [None]
    codes = [code for pair in pairs if isinstance(pair, list) and len(pair) == 2 for code in pair]
    return len(codes) == 2 * len(pairs) and all(isinstance(code, str) and is_language_code(code) for code in codes)


def write_fact(folder: Path, name: str, value: Any) -> None:
    """Set one of the facts of a model's card, which is replaced in one step."""
    card = read_card(folder)
    card["facts"][name] = value
    write_atomically(folder / CARD, card_text(card).encode())


def card_text(card: dict[str, Any]) -> str:
    return json.dumps(card, indent=1, ensure_ascii=False) + "\n"


def read_notes(folder: Path) -> str:
    """The content of `README.md`; empty if there is none."""
    path = folder / NOTES
    if not path.exists():
        return ""
    require_file(path, _CARD_BYTES, "a README may have")
    return path.read_text(encoding="utf-8", errors="replace")


def require_combinable(folder: Path, saved: SavedModel, other_folder: Path, other: SavedModel) -> None:
    """Raise an error unless both models have the same tokens with the same ids on both sides and a common direction."""
    vocabularies = [
        [side.pieces(range(side.vocab_size)) for side in (model.tokenizer, model.tokenizer.target)]
        for model in (saved, other)
    ]
    if vocabularies[0] != vocabularies[1]:
        raise ModelError(
            f"{folder} and {other_folder} have different vocabularies; name models that were trained with the same one"
        )
    directions, others = (directions_of(model.facts) for model in (saved, other))
    if directions and others and not {*directions} & {*others}:
        raise ModelError(
            f"{folder} translates {describe_directions(directions)}, and {other_folder} {describe_directions(others)}; "
            "name models of the same direction"
        )
    require_same_order(folder, saved.facts, other_folder, other.facts)


def require_same_order(folder: Path, facts: dict[str, Any], other_folder: Path, other: dict[str, Any]) -> None:
    """Raise an error if two models do not both tell their languages, and only one was trained with data.reverse."""
    orders = {told["reverse"] is True for told in (facts, other) if "reverse" in told}
    if len(orders) > 1 and not (directions_of(facts) and directions_of(other)):
        raise ModelError(
            f"{folder} and {other_folder} translate in opposite directions, as only one of them was trained with "
            "data.reverse; name models of the same direction"
        )

"""Model folders, read without torch: settings, tokenizer, facts, and the weights as bytes.

`saved.py` writes the folders, and makes torch modules of them.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from transduce.config import build
from transduce.disk import MANIFEST, damaged_file
from transduce.errors import ConfigError, ModelError, needs_torch
from transduce.fast.native.shortlist import Shortlist, load_shortlist
from transduce.models.arrays import Array, Int8Matrix
from transduce.models.card import CARD, SHORTLIST, WEIGHTS, read_card
from transduce.models.config import DecoderOnlyConfig, EncoderDecoderConfig, ModelConfig
from transduce.models.header import LARGEST, Precision, Shapes, is_matrix, open_weights, stored_shapes
from transduce.tokenizers.any_tokenizer import AnyTokenizer, load_tokenizer, tokenizer_file
from transduce.tokenizers.tokenizer_pair import TokenizerPair

if TYPE_CHECKING:
    from transduce.models.model import Model

_CONFIGS: dict[str, type[ModelConfig]] = {"encoder_decoder": EncoderDecoderConfig, "decoder_only": DecoderOnlyConfig}
"""The settings that are known without torch; those of other architectures are in models/registry.py."""


class StoredWeights(Mapping[str, Array]):
    """The tensors of a weights file by name; each is read when it is used."""

    def __init__(self, path: Path, precision: Precision = "float32") -> None:
        self.path, self.precision = path, precision
        self._file = open_weights(path, precision)
        self.stored_shapes = self._file.shapes

    def __getitem__(self, name: str) -> Array:
        """The weights of this name: real numbers, or integers if they are stored as such."""
        if self.precision == "int8" and is_matrix(name, self.stored_shapes[name]):
            return Int8Matrix(self._file.read(name), self._file.read(name + LARGEST))
        return self._file.read(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.stored_shapes if not self._belongs_to_matrix(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def require_shapes(self, expected: Shapes) -> None:
        """Raise an error unless the file has tensors of these names and shapes, and no others."""
        wanted = stored_shapes(expected, self.precision)
        if self.stored_shapes != wanted:
            name = min(set(wanted.items()) ^ set(self.stored_shapes.items()))[0]
            actual, required = self.stored_shapes.get(name, "missing"), wanted.get(name, "absent")
            raise ModelError(f"{self.path}: does not fit {CARD}: {name[:80]} is {actual}, but should be {required}")

    def _belongs_to_matrix(self, name: str) -> bool:
        return self.precision == "int8" and name.endswith(LARGEST)


@dataclass(frozen=True)
class StoredModel:
    """The content of a model folder."""

    config: ModelConfig
    tokenizer: AnyTokenizer
    facts: dict[str, Any]
    """Metadata: data, steps, scores, the longest input in training."""
    weights: StoredWeights

    @property
    def vocab_size(self) -> int:
        """Number of tokens of outputs."""
        return self.tokenizer.target.vocab_size

    @property
    def longest(self) -> int | None:
        """See `Model`."""
        assert isinstance(self.config, EncoderDecoderConfig)
        return self.config.longest

    @cached_property
    def shortlist(self) -> Shortlist | None:
        """The lexical shortlist of the folder, if it has one."""
        return load_shortlist(self.weights.path.parent, self.tokenizer)

    def module(self, device: str = "cpu") -> "Model":
        """A torch module of this model; an error in one line if torch is not installed."""
        with needs_torch():
            from transduce.models.saved import build_module

            return build_module(self, device)


AnyModel: TypeAlias = "Model | StoredModel"
"""A torch module, or a model that only the native engine runs, so that torch need not be imported."""


def read_model(folder: Path) -> StoredModel:
    """Read a model folder, which is untrusted: inconsistent sizes are refused before anything is allocated."""
    is_checkpoint = (folder / MANIFEST).exists()
    vocabulary = tokenizer_file(folder).name
    needed = (CARD, WEIGHTS, vocabulary, *([SHORTLIST] if (folder / SHORTLIST).exists() else []))
    if is_checkpoint and (damage := damaged_file(folder, needed, others=False)):
        raise ModelError(f"{damage[0]} {damage[1]}; name another checkpoint of the run, or continue its training")
    card = read_card(folder)
    weights = StoredWeights(folder / WEIGHTS, card["precision"])
    tokenizer = load_tokenizer(folder)
    if card["vocab_size"] != tokenizer.target.vocab_size:
        stated, actual = _count(card["vocab_size"]), _count(tokenizer.target.vocab_size)
        raise ModelError(f"{folder / CARD}: vocab_size is {stated}, but {vocabulary} has {actual} tokens")
    config = _build_config(card["architecture"], card["model"], str(folder / CARD))
    _require_source_vocabulary(folder, config, tokenizer)
    required = config.min_parameters(tokenizer.target.vocab_size)
    stored = sum(map(math.prod, weights.stored_shapes.values()))
    if required > stored:
        raise ModelError(
            f"{folder / WEIGHTS}: does not fit {CARD}: it has {stored:,} weights, but at least {_count(required)} "
            "are expected"
        )
    return StoredModel(config, tokenizer, card["facts"], weights)


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

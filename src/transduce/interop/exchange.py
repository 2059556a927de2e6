"""What formats have in common: a model that is read, one that is written, its weights with transformers' names."""

import json
import struct
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from mmap import mmap
from pathlib import Path
from string import Template
from typing import Any, Protocol

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.fast.native.shortlist import Shortlist
from transduce.files.languages import Direction
from transduce.interop.family import fairseq_modules
from transduce.interop.imported_tokenizers import ImportedTokenizer, TokenOrder
from transduce.interop.vocabulary import ExportedVocabulary
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.model import Model
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "swish": "swish"}
"""The names of activations in transformers, by ours."""
CARD = "transduce.json"
"""File of an export with the card of the original, by which `transduce import` restores the model exactly."""
ORIGINAL_NOTES = "## The original model"
"""Heading, in the README.md of an export, of the notes of the model that was exported."""
VOCABULARY = ("embedding.weight_VD", "source_weight_VD", "output.weight_VD", "output.bias_V")
"""The weights with a row for each token."""
SOURCE_EMBEDDING = "model.encoder.embed_tokens.weight"
"""Name in transformers of the source's embeddings, if they are its own."""
POSITIONS = 1024
"""Number of sinusoids in an export: they have no limit of their own."""
_COMMON = {
    "decoder_cell": "attention", "norm_type": "layer", "bias": True, "source": "text", "share_positions": True,
    "decoder_tag": False,
}  # fmt: skip
"""Settings that exporters can express, unless they allow others."""


@dataclass(frozen=True)
class Original:
    """A model of another toolkit that is imported, in the form of a Hugging Face folder."""

    format: str
    settings: dict[str, Any]
    """The content of `config.json`."""
    weights: Mapping[str, Tensor]
    tokenizer: ImportedTokenizer | TokenizerPair
    notes: str = ""
    shortlist: Shortlist | None = None
    direction: Direction | None = None
    """The languages, if the files tell."""
    ends: Sequence[int] = ()
    """The original ids of all end markers, if there are several."""

    @property
    def order(self) -> TokenOrder:
        target = self.tokenizer.target
        assert isinstance(target, ImportedTokenizer)
        return target.order

    @property
    def source_order(self) -> TokenOrder | None:
        """The order of the ids of the source, if it has a vocabulary of its own."""
        source = self.tokenizer.source if isinstance(self.tokenizer, TokenizerPair) else None
        return source.order if isinstance(source, ImportedTokenizer) else None


@dataclass(frozen=True)
class Exported:
    """What exporters write: a model with its vocabulary and facts."""

    model: EncoderDecoder
    tokenizer: AnyTokenizer
    vocabulary: ExportedVocabulary
    facts: dict[str, Any]
    search: SearchConfig
    direction: Direction | None
    """The languages, if they are known and the model has one direction or one was chosen."""
    max_source_length: int
    quantization: str = "float32"

    @property
    def example(self) -> str:
        """A text to translate, with the tag of a language if the model has tags."""
        tags = self.vocabulary.tags
        target = self.direction[1] if self.direction and self.direction[1] in tags else next(iter(tags), None)
        return "Hello!" if target is None else f"{tags[target]} Hello!"


class Consumer(Protocol):
    """A program that runs the exported model. Outputs and logits are in the order of our ids."""

    name: str
    """Name and version, for people."""

    def logits(self, text: str, output: Sequence[int]) -> Tensor:
        """The logits (T + 1, V) for a source as a user types it, at each token of the output and at its end."""

    def translate(self, texts: Sequence[str], limits: Sequence[int]) -> list[list[int]]:
        """Greedy outputs without markers, at least as long as the limit unless they end before."""


@dataclass(frozen=True)
class Exporter:
    """A row of the table of exporters."""

    format: str
    """The table of `formats.toml` that describes it."""
    check: Callable[[Model], EncoderDecoder]
    """Raises a ModelError, which says why, if the format cannot express the model."""
    write: Callable[[Exported, Path], None]
    """Writes the files of the export to a folder; may raise a ModelError as well."""
    consumer: Callable[[Exported, Path], Consumer | None]
    """The program that verifies them; None if it is not installed or gives no logits: then `transduce import` does."""
    limits: Callable[[Exported], list[str]] = lambda _: []
    """What differs in the other toolkit for this model, beside what `formats.toml` tells, as sentences."""
    quantizations: Sequence[str] = ("float32",)
    one_direction: bool = False
    """Whether the export is for one pair of languages, which must be known."""
    names: Callable[[Exported], Mapping[str, str]] = lambda _: {}
    """Further names in the example of `formats.toml`."""

    @property
    def title(self) -> str:
        return str(_formats()[self.format]["title"])

    def describe(self, exported: Exported) -> list[str]:
        """What differs in the other toolkit."""
        return [*_formats()[self.format]["limits"], *self.limits(exported)]

    def usage(self, exported: Exported, name: str) -> str:
        """An example in Python of the use of an exported folder."""
        source, target = exported.direction or ("", "")
        search, names, table = exported.search, self.names(exported), self.format
        if exported.facts.get("source_tags"):
            tags, table = exported.vocabulary.tags, f"{self.format}_multilingual"
            source, target = tags.get(source, next(iter(tags.values()))), tags.get(target, [*tags.values()][-1])
        return Template(_formats()[table]["usage"]).substitute(
            names, name=name, example=repr(exported.example), beam=search.beam, penalty=search.length_penalty,
            source=source, target=target,
        )  # fmt: skip


@cache
def _formats() -> dict[str, Any]:
    return tomllib.loads(files("transduce.interop").joinpath("formats.toml").read_text(encoding="utf-8"))


def require_exportable(model: Model, target: str, **allowed: Sequence[object]) -> EncoderDecoder:
    """The model as an encoder-decoder of text; raises an error unless `target` can express all of its settings.

    `allowed` are the values of further settings that the target has.
    """
    if not isinstance(model, EncoderDecoder):
        raise ModelError(f"{target} export is for encoder-decoder models, not for {model.config.architecture} models")
    config = model.config
    for name, values in {**{name: (value,) for name, value in _COMMON.items()}, **allowed}.items():
        if (value := getattr(config, name)) not in values:
            known = " or ".join(str(possible).lower() for possible in values)
            raise ModelError(f"{target} has no models with model.{name} = {str(value).lower()}, only {known}")
    width = config.d_model // config.num_heads
    if config.heads.kv_heads != config.num_heads or config.head_widths != (width, width):
        raise ModelError(f"{target} has no heads of a width other than d_model / num_heads, and no grouped heads")
    return model


def position_table(model: EncoderDecoder, length: int = POSITIONS) -> Tensor:
    """The positional encodings (T, D): `length` sinusoids, or all learned ones."""
    positions = model.embedding.positions
    assert positions is not None
    if model.config.positions == "learned":
        return positions.table_TD.detach()
    positions.require(length)
    return positions.table_TD[:length]


def to_halves(d_model: int) -> Tensor:
    """The permutation of the width after which sines and cosines lie side by side, as in Marian."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def permute_width(weights: Mapping[str, Tensor], order_D: Tensor) -> dict[str, Tensor]:
    """Weights of our encoder-decoder with the width of the model in another order; the outputs stay the same."""
    permuted = {}
    for name, x in weights.items():
        module, kind = (["", *name.split(".")])[-2:]
        if kind in ("weight_VD", "source_weight_VD", "table_TD") or (
            kind == "weight" and module in ("qkv", "q", "kv", "inner")
        ):
            permuted[name] = x[:, order_D]
        elif module in ("out", "outer") or module.endswith("norm"):
            permuted[name] = x[order_D]
        else:
            permuted[name] = x
    return permuted


def scale_residuals(weights: Mapping[str, Tensor], config: EncoderDecoderConfig, factor: float) -> dict[str, Tensor]:
    """Weights of our post-norm model with the inputs of all norms multiplied by a factor; the outputs stay the same.

    Norms divide it out again, but their epsilon counts less: LN(factor x) with epsilon e is LN(x) with e / factor^2.
    """
    last = {
        f"encoder.{config.encoder_layers - 1}.residuals.1.norm": 1.0,
        f"decoder.{config.decoder_layers - 1}.residuals.2.norm": 1 / factor if config.tie_output else 1.0,
    }
    scaled = {}
    for name, x in weights.items():
        path, _, kind = name.rpartition(".")
        module, scale = path.rpartition(".")[2], 1.0
        if path in last:
            scale = last[path]
        elif module in ("out", "outer", "norm") or name in (*VOCABULARY[:2], "embedding.positions.table_TD"):
            scale = factor
        elif kind == "weight" and module in ("qkv", "q", "inner"):
            scale = 1 / factor
        scaled[name] = x * scale
    return scaled


def transformers_weights(
    model: EncoderDecoder, change: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda weights: weights
) -> dict[str, Tensor]:
    """All weights but positions, after a change that keeps the outputs.

    The shared embeddings are those of the target if the source has its own, `model.encoder.embed_tokens`.
    """
    config = model.config
    ours = change({name: x.detach().float() for name, x in model.state_dict().items()})
    theirs = {
        "model.shared.weight": ours["embedding.weight_VD"],
        "lm_head.weight": ours["embedding.weight_VD" if config.tie_output else "output.weight_VD"],
        "final_logits_bias": ours.get("output.bias_V", torch.zeros(model.vocab_size))[None],
    }
    if config.source_vocab_size is not None:
        theirs[SOURCE_EMBEDDING] = ours["source_weight_VD"]
    for module, names in fairseq_modules(config):
        for kind in ("weight", "bias"):
            if f"{module}.{kind}" in ours:
                split = zip(names, ours[f"{module}.{kind}"].chunk(len(names)), strict=True)
                theirs |= {f"model.{name}.{kind}": x for name, x in split}
    return theirs


class ByteReader:
    """Reads a binary file, which is untrusted: a ValueError or a struct.error if it ends too early."""

    def __init__(self, content: bytes | bytearray | mmap, at: int = 0, order: str = "<") -> None:
        self._content, self._at, self._order = content, at, order

    def skip(self, size: int) -> int:
        """Go on by this many bytes; returns where they begin."""
        start, self._at = self._at, self._at + size
        if self._at > len(self._content):
            raise ValueError("it ends too early")
        return start

    def take(self, size: int) -> bytes | bytearray:
        start = self.skip(size)
        return self._content[start : self._at]

    def numbers(self, code: str, count: int = 1) -> tuple[int, ...]:
        """Whole numbers of a format of `struct`."""
        layout = f"{self._order}{count}{code}"
        return struct.unpack_from(layout, self._content, self.skip(struct.calcsize(layout)))

    def number(self, code: str) -> int:
        return self.numbers(code)[0]


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file of an export."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

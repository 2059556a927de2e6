"""The contracts between `export_model` and the exporters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from torch import Tensor

from transduce.files.languages import Direction
from transduce.interop.export.vocabulary import ExportedVocabulary
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.model import Model
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer

Quantization = Literal["float32", "int8"]
CARD = "transduce.json"
"""File of an export with the card of the original, by which `transduce import` restores the model exactly."""


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
    quantization: Quantization = "float32"


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

    title: str
    """Name of the format, for people."""
    check: Callable[[Model], EncoderDecoder]
    """Raises a ModelError, which says why, if the format cannot express the model."""
    write: Callable[[Exported, Path], None]
    """Writes the files of the export to a folder; may raise a ModelError as well."""
    consumer: Callable[[Exported, Path], Consumer]
    """The program that verifies them."""
    limits: Callable[[Exported], list[str]]
    """What differs in the other toolkit, beside `common_limits`, as sentences."""
    usage: Callable[[Exported, str], str]
    """An example of its use in Python, given the name of the folder."""
    quantizations: Sequence[Quantization] = ("float32",)
    one_direction: bool = False
    """Whether the export is for one pair of languages, which must be known."""

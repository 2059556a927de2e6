"""The type of a model for its users, with torch or without it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from transduce.models.config import ModelConfig
from transduce.models.weights_file import Arrays, Shapes
from transduce.tokenizers.any_tokenizer import AnyTokenizer

if TYPE_CHECKING:
    from transduce.models.model import Model

T = TypeVar("T")


class AnyModel(Protocol):
    """A torch module (`Model`), or a model folder that becomes one when it is first needed (`ModelFolder`).

    The engine native takes the weights from the file, so torch need not be installed.
    """

    @property
    def config(self) -> ModelConfig: ...

    @property
    def vocab_size(self) -> int:
        """Number of tokens of outputs."""

    @property
    def longest(self) -> int | None:
        """Upper bound on the tokens of a text, without markers; None if there is no bound."""

    @property
    def device_type(self) -> str:
        """The type of the device that the model is for, such as "cpu" or "cuda"."""

    @property
    def generates(self) -> bool:
        """Whether the model generates text: its module is a `Decoder` (search/decoder.py)."""

    @property
    def aligns(self) -> bool:
        """Whether the model has a cross-attention that aligns output tokens with source tokens."""

    @property
    def is_built(self) -> bool:
        """Whether the torch module exists."""

    def module(self) -> "Model":
        """The torch module; of a folder, it is built on the CPU when this is first called."""

    def arrays(self, shapes: Shapes) -> Arrays:
        """The weights for an engine without torch; those of a file, which is untrusted, must have these shapes."""

    def side_file(self, name: str, read: Callable[[Path, AnyTokenizer], T]) -> T | None:
        """What an engine reads from its file of the model folder; None if there is none. It is read once."""

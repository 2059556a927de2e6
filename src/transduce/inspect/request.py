"""What can be inspected, and requests for it, with their checks; works without torch."""

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from transduce.errors import ConfigError, DataError, ModelError
from transduce.files.texts import require_text
from transduce.search.decoder import NEVER_GENERATED
from transduce.tokenizers.tokenizer import EOS
from transduce.translation.text import Segment
from transduce.translation.translator import Translator

if TYPE_CHECKING:
    from transduce.models.model import Model

MAX_CHARACTERS, MAX_TOKENS, MAX_BEAM = 10_000, 256, 16
"""Limits of one inspection: the attention weights grow with the square of the number of tokens."""


@dataclass(frozen=True, kw_only=True)
class InspectionRequest:
    """A text to translate and inspect, with search options."""

    text: str
    beam: int | None = None
    """Hypotheses kept at each step; None is the translator's setting."""
    length_penalty: float | None = None
    """Exponent of the length penalty (alpha); None is the translator's setting."""
    prefix: list[int] = field(default_factory=list)
    """Token ids that the output must begin with; if they end with the end marker, the complete output."""
    to: str | None = None
    """Target language, for a model with several."""
    off: list[str] = field(default_factory=list)
    """Names of attention heads to switch off, e.g. cross.1.2."""


@dataclass(frozen=True, kw_only=True)
class HeadRequest:
    """A head, e.g. cross.1.2, and the position of its query in a translation."""

    text: str
    head: str
    query: int
    output: list[int] = field(default_factory=list)
    """Token ids of the translation, without the end marker."""
    to: str | None = None


def can_inspect(translator: Translator) -> bool:
    """Whether a translator can be inspected: its model must be one model with cross-attention, and torch be there."""
    model = translator.any_model
    attends = getattr(model.config, "decoder_cell", "attention") == "attention"
    attends = attends and not getattr(model.config, "decoder_tag", False)
    return find_spec("torch") is not None and attends and model.aligns and model.config.architecture != "ensemble"


def inspected_model(translator: Translator) -> "Model":
    """The model of a translator; a ModelError if it cannot be inspected."""
    model = translator.model
    if not can_inspect(translator):
        kind = f"of the architecture {model.config.architecture}"
        if (cell := getattr(model.config, "decoder_cell", "attention")) != "attention":
            kind = f"with model.decoder_cell = {cell}"
        elif getattr(model.config, "decoder_tag", False):
            kind = "with model.decoder_tag = true"
        raise ModelError(f"models {kind} cannot be inspected")
    return model


def inspected_part(translator: Translator, text: str, to: str | None) -> Segment:
    """The text as one part; a DataError if it cannot be inspected."""
    check_characters(text)
    part = translator.whole(text, to)
    if len(part.tokens) > MAX_TOKENS:
        raise DataError(f"the text has {len(part.tokens):,} tokens; at most {MAX_TOKENS} can be inspected: shorten it")
    return part


def check_characters(text: str) -> None:
    """Raise a DataError if a text is not valid or too long to be tokenized."""
    require_text(text, "the text")
    if len(text) > MAX_CHARACTERS:
        raise DataError(
            f"the text has {len(text):,} characters; at most {MAX_CHARACTERS:,} can be inspected: shorten it"
        )


def check_tokens(prefix: list[int], model: "Model") -> None:
    """Raise ConfigError if an output cannot begin with these token ids."""
    longest = 2 * MAX_TOKENS if model.longest is None else min(model.longest, 2 * MAX_TOKENS)
    if len(prefix) > longest:
        raise ConfigError(f"the prefix has {len(prefix):,} tokens; an output may have {longest}: shorten it")
    for position, token in enumerate(prefix):
        if not 0 <= token < model.vocab_size:
            raise ConfigError(f"prefix: {token} is not a token id; the vocabulary has 0 to {model.vocab_size - 1}")
        if token in NEVER_GENERATED or (token == EOS and position < len(prefix) - 1):
            raise ConfigError(f"prefix: token {token} is a special token, which an output cannot contain there")

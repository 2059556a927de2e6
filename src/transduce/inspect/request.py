"""What is asked of an inspection, and whether a model can be inspected, without torch."""

from dataclasses import dataclass, field
from importlib.util import find_spec

from transduce.translation.translator import Translator


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
    if find_spec("torch") is None:
        return False
    model = translator.any_model
    if getattr(model.config, "decoder_cell", "attention") != "attention":
        return False
    return model.aligns and model.config.architecture != "ensemble"

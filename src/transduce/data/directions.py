"""Directions of a corpus: the text of each, the tag of its target language, and temperature sampling over them."""

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.text.pairs import Corpus


@dataclass(frozen=True, kw_only=True)
class DirectionConfig:
    """The text of one direction of a multilingual model."""

    train: tuple[tuple[str, ...], ...] = ()
    """Training pairs, as in data.train."""
    valid: tuple[tuple[str, ...], ...] = ()
    """Validation pairs, likewise."""
    reverse: bool = False
    """Read the second side of every pair as the source."""


@dataclass(frozen=True)
class CorpusPart:
    """The text of one direction, and how it is read."""

    train: Corpus
    valid: Corpus
    reverse: bool
    name: str = ""
    """The direction, e.g. en-de, of a multilingual model."""
    target: str | None = None
    """The language whose tag begins every source; None if the model has a single direction and no tags."""


def repetitions(pairs: Sequence[int], temperature: float) -> list[float]:
    """How often each direction is repeated, given its number of pairs: the largest once, smaller ones more often.

    A direction with a share p of all pairs then has a share in proportion to p^(1/temperature) of each epoch.
    """
    most = max(pairs)
    return [(most / count) ** (1 - 1 / temperature) if count else 1.0 for count in pairs]

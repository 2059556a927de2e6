"""The ids of an imported vocabulary in the order that this package requires: the four markers first."""

from dataclasses import dataclass
from functools import cached_property

from transduce.errors import ModelError
from transduce.tokenizers.tokenizer import BOS, EOS, PAD, UNK

_MAX_TOKENS = 1 << 21
"""Limit for the size of a vocabulary: several times the largest in use."""
_OWNERS = (EOS, UNK, PAD, BOS)
"""Which marker keeps an original token that plays several roles; the others get copies."""


@dataclass(frozen=True)
class TokenOrder:
    """Maps the ids of an original vocabulary to ours. A token that plays the role of several markers is copied."""

    markers: tuple[int, int, int, int]
    """The original ids that play the roles of PAD, UNK, BOS and EOS."""
    size: int
    """Number of tokens of the original."""

    def __post_init__(self) -> None:
        if not 4 <= self.size <= _MAX_TOKENS:
            raise ModelError(f"a vocabulary of {self.size} tokens; it must have between 4 and {_MAX_TOKENS:,}")
        if outside := [marker for marker in self.markers if not 0 <= marker < self.size]:
            raise ModelError(f"the marker {outside[0]} is not one of the {self.size:,} tokens of the vocabulary")

    @cached_property
    def originals(self) -> list[int]:
        """The original id of each of our ids."""
        first = set(self.markers)
        return [*self.markers, *(token for token in range(self.size) if token not in first)]

    @cached_property
    def copies(self) -> list[int]:
        """Those of our ids that are copies of a token that has another id as well."""
        owners = {self.markers[marker]: marker for marker in reversed(_OWNERS)}
        return [marker for marker in range(4) if owners[self.markers[marker]] != marker]

    @cached_property
    def ids(self) -> list[int]:
        """Our id of each original id."""
        ours = [0] * self.size
        for token, original in enumerate(self.originals):
            if token not in self.copies:
                ours[original] = token
        return ours

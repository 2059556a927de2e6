"""Which pairs are of which kind, and a few of each kind to show."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from transduce.corpora.check.kinds import KINDS, WRONG, Kind
from transduce.corpora.check.robust import Flags

SHOWN = 3
"""Examples of each kind."""


@dataclass(frozen=True)
class Example:
    """A pair to show."""

    number: int
    source: str
    target: str


@dataclass
class Findings:
    """A flag for each pair and kind."""

    pairs: int
    flags: dict[str, Flags] = field(init=False)
    examples: dict[str, list[Example]] = field(init=False)

    def __post_init__(self) -> None:
        self.flags = {kind.name: np.zeros(self.pairs, np.bool_) for kind in KINDS}
        self.examples = {kind.name: [] for kind in KINDS}

    def complete(self, first: int, sources: Sequence[str], targets: Sequence[str], wrong: dict[str, Flags]) -> None:
        """Add what the text of some pairs, from the first on, has shown; keep examples of all that is found in them."""
        part = slice(first, first + len(sources))
        for name, flags in wrong.items():
            self.flags[name][part] = flags
        taken = np.zeros(len(sources), np.bool_)
        for kind in WRONG:
            self.flags[kind.name][part] &= ~taken
            taken |= self.flags[kind.name][part]
        for name, examples in self.examples.items():
            for place in np.flatnonzero(self.flags[name][part])[: SHOWN - len(examples)]:
                examples.append(Example(first + int(place), sources[place], targets[place]))

    def spoilt(self, first: int, pairs: int) -> Flags:
        """Which of some pairs are better left out."""
        part = slice(first, first + pairs)
        return np.any([self.flags[kind.name][part] for kind in KINDS if kind.spoils], axis=0)

    def count(self, kind: Kind) -> int:
        """How many pairs are of this kind."""
        return int(self.flags[kind.name].sum())

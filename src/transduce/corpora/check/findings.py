"""Which pairs have which issue, and a few examples of each issue."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from transduce.corpora.check.issues import ERRORS, ISSUES, Issue
from transduce.corpora.check.robust_statistics import Flags

EXAMPLES = 3
"""Number of examples of each issue."""


@dataclass(frozen=True)
class Example:
    """A pair that is shown in the report."""

    number: int
    source: str
    target: str


@dataclass
class Findings:
    """A flag for each pair and issue."""

    pairs: int
    flags: dict[str, Flags] = field(init=False)
    examples: dict[str, list[Example]] = field(init=False)

    def __post_init__(self) -> None:
        self.flags = {issue.name: np.zeros(self.pairs, np.bool_) for issue in ISSUES}
        self.examples = {issue.name: [] for issue in ISSUES}

    def complete(self, first: int, sources: Sequence[str], targets: Sequence[str], errors: dict[str, Flags]) -> None:
        """Add errors of consecutive pairs from number `first` on; keep the first error of each pair, and examples."""
        part = slice(first, first + len(sources))
        for name, flags in errors.items():
            self.flags[name][part] = flags
        has_error = np.zeros(len(sources), np.bool_)
        for issue in ERRORS:
            self.flags[issue.name][part] &= ~has_error
            has_error |= self.flags[issue.name][part]
        for name, examples in self.examples.items():
            for n in np.flatnonzero(self.flags[name][part])[: EXAMPLES - len(examples)]:
                examples.append(Example(first + int(n), sources[n], targets[n]))

    def left_out(self, first: int, pairs: int) -> Flags:
        """Flags those of consecutive pairs that --out leaves out."""
        part = slice(first, first + pairs)
        return np.any([self.flags[issue.name][part] for issue in ISSUES if issue.left_out], axis=0)

    def count(self, issue: Issue) -> int:
        """The number of pairs with this issue."""
        return int(self.flags[issue.name].sum())

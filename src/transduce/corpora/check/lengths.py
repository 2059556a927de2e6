"""Detects pairs whose lengths do not match, and ranges of a corpus in which one side is shifted by some lines.

Gale and Church 1993, "A Program for Aligning Sentences in Bilingual Corpora": the target of a source of l characters
has c·l characters on average, with a variance proportional to the length. c and the variance are fitted to the corpus.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

IMPROBABLE = 5.0
"""Number of standard deviations above which a pair is reported."""
MAX_OFFSET = 10
"""Largest offset, in lines, that is searched for."""
BLOCK = 10
"""Lines in a block; the boundaries of a shift are known to this accuracy."""
_SWITCH = 100.0  # cost of a change of offset, in standard deviations
_OFFSET = 0.4  # cost of an offset, for each line: in text sorted by length, neighbours fit almost as well by chance
_NORMAL = 1.4826  # ratio of standard deviation to median absolute deviation in a normal distribution


def robust_std(deviations: Floats, minimum: float) -> float:
    """The standard deviation, from the median absolute deviation, which outliers hardly change.

    It is `minimum` if most values are (nearly) the same.
    """
    return max(_NORMAL * float(np.median(np.abs(deviations))), minimum)


@dataclass(frozen=True)
class LengthModel:
    """The expected length of a target, given that of its source."""

    ratio: float
    std: float

    @staticmethod
    def fit(src: Floats, tgt: Floats) -> "LengthModel":
        """Fit the model to lengths in characters, by medians, which wrong pairs hardly change."""
        ratio = float(np.median(tgt / src))
        return LengthModel(ratio, robust_std(LengthModel(ratio, 1.0).deviations(src, tgt), minimum=0.5))

    def deviations(self, src: Floats, tgt: Floats) -> Floats:
        """The number of standard deviations by which each target is too long (positive) or too short (negative)."""
        expected = self.ratio * src
        return (tgt - expected) / np.sqrt((expected + tgt) / 2) / self.std


@dataclass(frozen=True)
class Shift:
    """From pair `first` up to `end`, source n belongs to target n + `offset`."""

    first: int
    end: int
    offset: int


def find_shifts(src: Floats, tgt: Floats, model: LengthModel, start: int = 0) -> list[Shift]:
    """The shifted ranges of a file with these lengths, whose first pair has the number `start`.

    If line n of the source belongs to line n + 1 of the target, lengths match when they are compared at that offset,
    and do not when they are compared line by line. The Viterbi algorithm finds the most likely sequence of offsets,
    over blocks of lines.
    """
    if not len(src):
        return []
    offsets = np.arange(-MAX_OFFSET, MAX_OFFSET + 1)
    costs = np.stack([_block_costs(src, tgt, model, int(offset)) for offset in offsets], axis=1)
    costs += np.where(offsets == 0, 0, _OFFSET * BLOCK)
    path = offsets[_viterbi(costs, initial=MAX_OFFSET)]
    edges = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    return [
        Shift(start + BLOCK * first, start + min(BLOCK * end, len(src)), int(path[first]))
        for first, end in pairwise(edges)
        if path[first] != 0
    ]


def _block_costs(src: Floats, tgt: Floats, model: LengthModel, offset: int) -> Floats:
    """How badly the lengths of each block match at this offset; a line without a counterpart has the maximum cost."""
    costs = np.full(-(-len(src) // BLOCK) * BLOCK, IMPROBABLE)
    costs[len(src) :] = 0
    first, end = max(0, -offset), min(len(src), len(src) - offset)
    if first < end:
        deviations = model.deviations(src[first:end], tgt[first + offset : end + offset])
        costs[first:end] = np.minimum(np.abs(deviations), IMPROBABLE)
    return costs.reshape(-1, BLOCK).sum(axis=1)


def _viterbi(costs_BS: Floats, initial: int) -> list[int]:
    """The state of every block on the cheapest path, if a change of state costs `_SWITCH`."""
    total_S = np.full(costs_BS.shape[1], _SWITCH)
    total_S[initial] = 0
    back_pointers = []
    for costs_S in costs_BS:
        cheapest = int(total_S.argmin())
        switches_S = total_S[cheapest] + _SWITCH < total_S
        back_pointers.append((switches_S, cheapest))
        total_S = np.where(switches_S, total_S[cheapest] + _SWITCH, total_S) + costs_S
    state = int(total_S.argmin())
    path = []
    for switches_S, cheapest in reversed(back_pointers):
        path.append(state)
        state = cheapest if switches_S[state] else state
    return path[::-1]

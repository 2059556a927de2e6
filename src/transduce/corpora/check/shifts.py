"""Stretches of a corpus in which one side has slipped by some lines, found by lengths alone.

Where line n of the source belongs to line n + 1 of the target, lengths go together when they are compared at that
shift, and do not when they are compared line by line. The likeliest course of shifts through the corpus is found by the
Viterbi algorithm, over blocks of lines.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from transduce.corpora.check.lengths import IMPROBABLE, LengthModel
from transduce.corpora.check.robust import Floats

FARTHEST = 10
"""Lines that a side may have slipped."""
BLOCK = 10
"""Lines that are shifted together, and so how exactly we know where a shift begins."""
_SWITCH = 100.0  # standard deviations that must be saved before a shift is believed
_DOUBT = 0.4  # and a line must save so many: in text sorted by length, neighbours fit almost as well by chance


@dataclass(frozen=True)
class Shift:
    """From pair `first` up to `end`, source n belongs to target n + `by`."""

    first: int
    end: int
    by: int

    def moved(self, pairs: int) -> "Shift":
        """The same stretch, counted from so many pairs before."""
        return Shift(self.first + pairs, self.end + pairs, self.by)


def find_shifts(src: Floats, tgt: Floats, model: LengthModel) -> list[Shift]:
    """The shifted stretches of a file with these lengths."""
    if not len(src):
        return []
    shifts = np.arange(-FARTHEST, FARTHEST + 1)
    costs = np.stack([_block_costs(src, tgt, model, int(by)) for by in shifts], axis=1)
    costs += np.where(shifts == 0, 0, _DOUBT * BLOCK)
    course = shifts[_best_course(costs, start=FARTHEST)]
    edges = [0, *(np.flatnonzero(np.diff(course)) + 1).tolist(), len(course)]
    return [
        Shift(BLOCK * first, min(BLOCK * end, len(src)), int(course[first]))
        for first, end in pairwise(edges)
        if course[first] != 0
    ]


def _block_costs(src: Floats, tgt: Floats, model: LengthModel, by: int) -> Floats:
    """How badly the lengths of each block go together at this shift; a line whose partner is not there costs most."""
    costs = np.full(-(-len(src) // BLOCK) * BLOCK, IMPROBABLE)
    costs[len(src) :] = 0
    first, end = max(0, -by), min(len(src), len(src) - by)
    if first < end:
        deviations = model.deviations(src[first:end], tgt[first + by : end + by])
        costs[first:end] = np.minimum(np.abs(deviations), IMPROBABLE)
    return costs.reshape(-1, BLOCK).sum(axis=1)


def _best_course(costs_BS: Floats, start: int) -> list[int]:
    """The cheapest state of every block, where a change of state costs `_SWITCH`; before the first, it is `start`."""
    total_S = np.full(costs_BS.shape[1], _SWITCH)
    total_S[start] = 0
    came_from = []
    for costs_S in costs_BS:
        cheapest = int(total_S.argmin())
        switches_S = total_S[cheapest] + _SWITCH < total_S
        came_from.append((switches_S, cheapest))
        total_S = np.where(switches_S, total_S[cheapest] + _SWITCH, total_S) + costs_S
    state = int(total_S.argmin())
    course = []
    for switches_S, cheapest in reversed(came_from):
        course.append(state)
        state = cheapest if switches_S[state] else state
    return course[::-1]

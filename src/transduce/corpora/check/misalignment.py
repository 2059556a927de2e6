"""Misaligned ranges of a corpus, in which one side is shifted by some lines, detected by lengths only.

If line n of the source belongs to line n + 1 of the target, lengths match when they are compared at that offset, and
do not when they are compared line by line. The Viterbi algorithm finds the most likely sequence of offsets, over blocks
of lines.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from transduce.corpora.check.lengths import IMPROBABLE, LengthModel
from transduce.corpora.check.robust_statistics import Floats

MAX_OFFSET = 10
"""Largest offset, in lines, that is searched for."""
BLOCK = 10
"""Lines in a block; the boundaries of a shift are known to this accuracy."""
_SWITCH = 100.0  # cost of a change of offset, in standard deviations
_OFFSET = 0.4  # cost of an offset, for each line: in text sorted by length, neighbours fit almost as well by chance


@dataclass(frozen=True)
class Shift:
    """From pair `first` up to `end`, source n belongs to target n + `offset`."""

    first: int
    end: int
    offset: int


def find_shifts(src: Floats, tgt: Floats, model: LengthModel, start: int = 0) -> list[Shift]:
    """The shifted ranges of a file with these lengths, whose first pair has the number `start`."""
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

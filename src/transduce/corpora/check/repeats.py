"""Pairs that come again, in the corpus or in a set that must stay unseen, by 64-bit keys of their texts."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.corpora.check.robust import Flags

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def of_pairs(src: Keys, tgt: Keys) -> Keys:
    """One key for both sides."""
    return src * _GOLDEN + tgt


def came_before(keys: Keys) -> Flags:
    """Where a key is not the first of its kind."""
    repeated = np.ones(len(keys), np.bool_)
    repeated[np.unique(keys, return_index=True)[1]] = False
    return repeated


class Leaks(NamedTuple):
    """Which pairs share a text with a set that must stay unseen; each is counted once."""

    pair: Flags
    source: Flags
    """The source alone, or both sides but of different pairs."""
    target: Flags


def find_leaks(src: Keys, tgt: Keys, unseen_src: Keys, unseen_tgt: Keys) -> Leaks:
    """Compare the keys of a corpus with those of the unseen set."""
    pair = np.isin(of_pairs(src, tgt), of_pairs(unseen_src, unseen_tgt))
    source = np.isin(src, unseen_src) & ~pair
    target = np.isin(tgt, unseen_tgt) & ~pair & ~source
    return Leaks(pair, source, target)

"""Pairs that occur again, in the corpus or in the held-out set, by 64-bit keys of their texts."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.corpora.check.robust_statistics import Flags

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def pair_keys(src: Keys, tgt: Keys) -> Keys:
    """One key for both sides of each pair."""
    return src * _GOLDEN + tgt


def occurred_before(keys: Keys) -> Flags:
    """Flags every key that is not the first one of its value."""
    repeated = np.ones(len(keys), np.bool_)
    repeated[np.unique(keys, return_index=True)[1]] = False
    return repeated


class Leaks(NamedTuple):
    """The pairs that share a text with the held-out set; each is flagged once."""

    pair: Flags
    source: Flags
    """Only the source, or both sides but of different pairs."""
    target: Flags


def find_leaks(src: Keys, tgt: Keys, held_out_src: Keys, held_out_tgt: Keys) -> Leaks:
    """Compare the keys of a corpus with those of the held-out set."""
    pair = np.isin(pair_keys(src, tgt), pair_keys(held_out_src, held_out_tgt))
    source = np.isin(src, held_out_src) & ~pair
    target = np.isin(tgt, held_out_tgt) & ~pair & ~source
    return Leaks(pair, source, target)

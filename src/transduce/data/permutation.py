"""A shuffle that can be asked for any one place, so that no epoch's order is ever held in memory."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
_ROUNDS = 4


def permuted(places: Ints, size: int, key: int) -> Ints:
    """Where a pseudo-random permutation of 0..size-1, chosen by `key`, sends these places.

    A Feistel network permutes the smallest square power of two that holds `size`; a result outside the range is
    sent round again (cycle walking), which keeps the map one-to-one.
    """
    half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    round_keys = np.random.Generator(np.random.Philox(key)).integers(0, 2**63, size=_ROUNDS, dtype=np.uint64)
    result = places.astype(np.uint64)
    outside = np.arange(len(result))
    while len(outside):
        result[outside] = _feistel(result[outside], half_bits, round_keys)
        outside = outside[result[outside] >= size]
    return result.astype(np.int64)


def _feistel(values: Bits, half_bits: int, round_keys: Bits) -> Bits:
    bits, mask = np.uint64(half_bits), np.uint64(2**half_bits - 1)
    left, right = values >> bits, values & mask
    for key in round_keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << bits) | right


def _mix(values: Bits) -> Bits:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))

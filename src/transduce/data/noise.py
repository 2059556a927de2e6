"""Random choices among the tokens of examples, for tasks that hide a part of each text.

Every random number is a function of an example, its own tokens, and a seed. So the result does not depend on the
batch, the part of a batch or the process that an example is in. All examples of a batch are computed at once.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transduce.data.packing import Ids, TokenIds

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Groups:
    """The items of each of B groups, side by side in one array: item n belongs to group `group_N[n]`."""

    def __init__(self, sizes_B: Ints) -> None:
        self.sizes_B = sizes_B
        self.starts_B: Ints = np.cumsum(sizes_B) - sizes_B
        self.group_N: Ints = np.repeat(np.arange(len(sizes_B)), sizes_B)
        self.place_N: Ints = np.arange(len(self.group_N)) - self.starts_B[self.group_N]
        """Index of each item in its group."""

    def choose(self, counts_B: Ints, random_N: Floats) -> Bools:
        """`counts_B` items of each group, given a random number for every item."""
        order = np.lexsort((random_N, self.group_N))
        chosen_N = np.zeros(len(order), dtype=bool)
        chosen_N[order] = self.place_N < counts_B[self.group_N]
        return chosen_N

    def sums_before(self, values_N: Ints) -> Ints:
        """For each item, the sum of the values before it in its group."""
        before_N = np.cumsum(values_N) - values_N
        first_B = before_N[np.minimum(self.starts_B, max(len(before_N) - 1, 0))] if len(before_N) else self.starts_B
        return before_N - first_B[self.group_N]


class RandomExamples:
    """The token ids of examples, and random numbers for them."""

    def __init__(self, sequences: Sequence[TokenIds], seed: int) -> None:
        self.ids_N: Ids = np.concatenate([np.zeros(0, np.int64), *sequences], dtype=np.int64, casting="unsafe")
        self.groups = Groups(np.fromiter(map(len, sequences), np.int64, len(sequences)))
        groups = self.groups
        hashes_N = _mixed(self.ids_N.astype(np.uint64) * _GOLDEN + groups.place_N.astype(np.uint64))
        sums_B = np.zeros(len(groups.sizes_B), np.uint64)
        np.add.at(sums_B, groups.group_N, hashes_N)
        self._keys_B = _mixed(sums_B + _mixed(np.array([seed % 2**64], np.uint64)))

    def numbers(self, groups: Groups, purpose: int) -> Floats:
        """A number in [0, 1) for each item; each purpose has numbers of its own."""
        item_N = groups.place_N.astype(np.uint64) * _GOLDEN + np.array([purpose], np.uint64) * _SECOND
        bits_N = _mixed(_mixed(item_N) + self._keys_B[groups.group_N]) >> np.uint64(11)
        return bits_N.astype(np.float64) * 2.0**-53

    def number_of_each(self, purpose: int) -> Floats:
        """A number in [0, 1) for each example."""
        return self.numbers(Groups(np.ones(len(self._keys_B), np.int64)), purpose)


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of SplitMix64, which spreads every bit over all bits."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))

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


class Spans:
    """The spans of each example, in order; X is the number of all spans."""

    def __init__(self, groups: Groups, length_X: Ints, gap_X: Ints) -> None:
        self.groups, self.length_X = groups, length_X
        self.gap_X = gap_X
        """Number of the example's other tokens before each span."""

    def tokens(self, tokens: Groups) -> Bools:
        start_X = self.gap_X + self.groups.sums_before(self.length_X) + tokens.starts_B[self.groups.group_N]
        edges_N1 = np.zeros(len(tokens.group_N) + 1, np.int64)
        np.add.at(edges_N1, start_X, 1)
        np.add.at(edges_N1, start_X + self.length_X, -1)
        return np.cumsum(edges_N1)[:-1] > 0


def random_spans(random: RandomExamples, share: float, mean: float, most: int) -> Spans:
    """Spans of at least one token, never adjacent, that have a share of each text and a mean length (T5).

    A text of n tokens has round(n * share) tokens in spans, at least one, in as many spans as the mean length requires,
    at most `most`. All divisions of the tokens into spans, and all places of the spans, are equally likely.
    """
    sizes_B = random.groups.sizes_B
    inside_B = np.maximum(1, np.rint(sizes_B * share).astype(np.int64))
    counts_B = np.clip(np.rint(inside_B / mean).astype(np.int64), 1, np.minimum(inside_B, sizes_B - inside_B + 1))
    counts_B = np.minimum(counts_B, most)
    # The tokens inside spans are cut at some of the places between them.
    inside = Groups(inside_B)
    between = Groups(inside_B - 1)
    cut = between.choose(counts_B - 1, random.numbers(between, 1))
    begins = inside.place_N == 0
    begins[inside.starts_B[between.group_N[cut]] + between.place_N[cut] + 1] = True
    first = np.flatnonzero(begins)
    length_X = np.diff([*first, len(inside.group_N)])
    # Each span takes another one of the places before, between and after the other tokens.
    gaps = Groups(sizes_B - inside_B + 1)
    return Spans(Groups(counts_B), length_X, gaps.place_N[gaps.choose(counts_B, random.numbers(gaps, 2))])


def poisson_spans(random: RandomExamples, share: float, mean: float) -> Spans:
    """Spans whose lengths are drawn from a Poisson distribution, until they have a share of each text (BART).

    A span may be empty, and spans may be adjacent. The last one is cut off at round(n * share) tokens, at least one.
    There are at most as many spans as tokens in them.
    """
    sizes_B = random.groups.sizes_B
    inside_B = np.maximum(1, np.rint(sizes_B * share).astype(np.int64))
    draws = Groups(inside_B)
    probability, cumulative = float(np.exp(-mean)), list[float]()
    for length in range(1, int(mean + 10 * mean**0.5) + 10):
        cumulative.append(probability + (cumulative[-1] if cumulative else 0.0))
        probability *= mean / length
    length_X = np.searchsorted(cumulative, random.numbers(draws, 1), side="right")
    before_X = draws.sums_before(length_X)
    left_X = inside_B[draws.group_N] - before_X
    used_X = left_X > 0
    is_last_X = draws.place_N == inside_B[draws.group_N] - 1
    length_X = np.where(is_last_X, left_X, np.minimum(length_X, left_X))[used_X]
    counts_B = np.bincount(draws.group_N[used_X], minlength=len(sizes_B))
    # In the order of other tokens and spans, any places are those of the spans.
    spans, order = Groups(counts_B), Groups(sizes_B - inside_B + counts_B)
    place_X = order.place_N[order.choose(counts_B, random.numbers(order, 2))]
    return Spans(spans, length_X, place_X - spans.place_N)


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of SplitMix64, which spreads every bit over all bits."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))

"""The batch plan: which pairs make up which batch, as a pure function of corpus, seed and batch number.

The corpus is sorted by length (`order.npy`) and cut into strata: runs of as many neighbours as there are pools. In each
epoch every pool draws one pair from every stratum. So all pools have the same distribution of lengths, already sorted,
and each is cut into the same number of batches of pairs of similar lengths (section 5.1: "sentence pairs were batched
together by approximate sequence length"), whose order is shuffled. The pool of any batch can be computed without
the batches before it, and no pair is ever left over.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from transduce.config import require
from transduce.data.packing import Example
from transduce.data.shards import TokenShards

Ints = npt.NDArray[np.int64]

POOL_BATCHES = 64
"""Approximate number of batches in a pool: more give batches of more similar lengths, fewer are faster to compute."""
FEWEST_POOLS = 8
"""Minimum number of pools: with only a few, batches would hold the same pairs in every epoch."""
SHORTEST_MEAN = 4
"""A batch has at most batch_tokens / 4 pairs, which bounds the number of its segments."""


class Plan(Protocol):
    """Which examples make up which batch: a pure function of corpus, seed and batch number."""

    shards: TokenShards
    batch_tokens: int
    """Upper bound on the tokens of a batch in each stream."""
    seed: int
    growth: float
    """Expected factor by which the variation of examples makes them longer."""

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches in one pass over the corpus."""

    def batch(self, number: int) -> Ints:
        """The numbers of the examples in batch `number`, counted from the start of training."""

    def examples(self, number: int) -> Sequence[Example]:
        """The examples of batch `number`."""

    def tokens(self, example: Example) -> list[int]:
        """The number of tokens of an example in each stream of a packed batch."""

    @property
    def longest(self) -> int:
        """Upper bound on the length of a segment, for batches of fixed shape."""

    def part_shape(self, split: int, processes: int, *, varied: bool) -> "PartShape":
        """Bounds on the parts of batches that are shared by processes, each of which splits its share."""


class PartShape(NamedTuple):
    """Bounds on a part of a batch; if all batches have the same shape, it is filled up to them."""

    tokens: int
    """Tokens of each stream."""
    sequences: int
    """Sequences of each stream."""
    filler_segments: int | None = None
    """Segments of filler beside all sequences; None: as many as filler of all tokens needs."""


class BatchPlan:
    """Batches of at most `batch_tokens` tokens in each stream, including `markers` markers of each sequence.

    If augmentation or BPE-dropout will make sentences longer than they are in the shards, `growth` is the expected
    factor, for which space is left.
    """

    def __init__(
        self, shards: TokenShards, batch_tokens: int, seed: int, growth: float = 1.0, markers: int = 1
    ) -> None:
        self.shards, self.batch_tokens, self.seed = shards, batch_tokens, seed
        self.growth, self.markers = growth, markers
        self._budget = int(batch_tokens / growth)
        longest = shards.index["longest"]
        marked = {0: "", 1: " and an end marker"}.get(markers, f" and {markers} markers")
        require(
            self._budget >= longest + markers,
            f"train.batch_tokens is {batch_tokens}, but a sentence has {longest} tokens{marked}; "
            "raise train.batch_tokens or lower data.max_length",
        )
        self.max_pairs = max(1, self._budget // SHORTEST_MEAN)
        batches = len(shards) * (max(shards.mean_lengths) + markers) / self._budget
        # If pairs are repeated, there are enough pools for one copy in each: copies have the same length, and those in
        # the same pool would be in the same batch.
        wanted = max(FEWEST_POOLS, round(batches / POOL_BATCHES), shards.most_repeats)
        fewest = max(1, min(int(batches / 4), wanted))
        # The last batch of a pool is seldom full: among a few numbers of pools, take the one with the fewest batches.
        candidates = range(fewest, max(fewest, min(2 * fewest, fewest + 15, int(batches / 4))) + 1)
        self.pools, self._strata, self.batches_per_pool = min(
            map(self._partition, candidates), key=lambda partition: partition[0] * partition[2]
        )
        if len(shards) // self.pools < self.batches_per_pool:  # a batch might be empty
            self.pools, self._strata, self.batches_per_pool = self._partition(1)
        self._pool = lru_cache(maxsize=2)(self._compute_pool)

    def _partition(self, pools: int) -> tuple[int, Ints, int]:
        """The number of pools, the order in which they draw from the strata, and the number of batches in each."""
        longest = self.shards.longest_in_runs(pools) + self.markers
        # By length; among strata of one length, those with a longer source and those with a longer target are shuffled,
        # so that both sides of a batch are filled equally.
        mixed = np.random.Generator(np.random.PCG64(pools)).permutation(len(longest))
        strata = mixed[np.argsort(longest[mixed].max(axis=1), kind="stable")]
        # A pool of the longest pair of every stratum is an upper bound: the batches that it needs suffice for any pool.
        return pools, strata, len(self._cuts(_running_sums(longest[strata]), self._budget))

    @property
    def batches_per_epoch(self) -> int:
        return self.pools * self.batches_per_pool

    def batch(self, number: int) -> Ints:
        pool, index = divmod(number, self.batches_per_pool)
        return self._pool(pool)[index]

    def examples(self, number: int) -> Sequence[Example]:
        return self.shards.pairs(self.batch(number))

    def tokens(self, example: Example) -> list[int]:
        return [len(ids) + self.markers for ids in example]

    @property
    def longest(self) -> int:
        return int(self.shards.index["max_length"]) + self.markers

    def part_shape(self, split: int, processes: int, *, varied: bool) -> PartShape:
        total, parts = self.batch_tokens, split * processes
        longest = self.shards.index["max_length" if varied else "longest"]
        tokens = total if parts == 1 else min(total, total // parts + longest + self.markers)
        return PartShape(tokens, sequences=-(-self.max_pairs // processes))

    def _compute_pool(self, pool: int) -> list[Ints]:
        epoch, index = divmod(pool, self.pools)
        shift = np.random.Generator(np.random.PCG64([self.seed, epoch])).integers(self.pools, size=len(self._strata))
        ranks = self._strata * self.pools + (index + shift) % self.pools
        ranks = ranks[ranks < len(self.shards)]  # the last stratum may have fewer pairs than there are pools
        cuts = self._even_cuts(_running_sums(self.shards.sorted_lengths(ranks) + self.markers))
        pairs = self.shards.sorted_pairs(ranks)
        batches = [pairs[start:end] for start, end in zip([0, *cuts[:-1]], cuts, strict=True)]
        order = np.random.Generator(np.random.PCG64([self.seed, epoch, index + 1])).permutation(self.batches_per_pool)
        return [batches[i] for i in order]

    def _cuts(self, sums: list[Ints], budget: float) -> list[int]:
        """The end of each batch, if each takes as many pairs as fit into the budget of every stream."""
        cuts, start, pairs = [], 0, len(sums[0]) - 1
        while start < pairs:
            fitting = min(int(stream.searchsorted(int(stream[start] + budget), "right")) - 1 for stream in sums)
            start = min(max(fitting, start + 1), start + self.max_pairs, pairs)
            cuts.append(start)
        return cuts

    def _even_cuts(self, sums: list[Ints]) -> list[int]:
        """The ends of exactly `batches_per_pool` batches of about equal size, by bisection of the budget."""
        low, high = max(stream[-1] for stream in sums) / self.batches_per_pool * 0.98, float(self._budget)
        best = self._cuts(sums, high)
        for _ in range(8):
            middle = (low + high) / 2
            cuts = self._cuts(sums, middle)
            if len(cuts) <= self.batches_per_pool:
                best, high = cuts, middle
            else:
                low = middle
        while len(best) < self.batches_per_pool:  # still too few: split the largest
            sizes = np.diff([0, *best])
            largest = int(sizes.argmax())
            best.insert(largest, best[largest] - int(sizes[largest]) // 2)
        return best


def _running_sums(lengths: Ints) -> list[Ints]:
    """For each stream, the number of tokens before every pair, and the total."""
    return [np.concatenate([[0], np.cumsum(stream)]) for stream in lengths.T]

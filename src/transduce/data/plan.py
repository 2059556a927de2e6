"""The batch plan: which pairs make up which batch, as a pure function of corpus, seed and number.

The corpus lies sorted by length (`order.npy`) and is cut into strata of as many neighbours as there are pools. In each
epoch every pool draws one pair of every stratum. So all pools are alike: each holds the whole range of lengths, already
in order, and is cut into the same number of batches of pairs of similar lengths (section 5.1: "sentence pairs were
batched together by approximate sequence length"), which come in shuffled order. The pool of any batch is known without
looking at the ones before it, and no pair is ever left over.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from transduce.config import require
from transduce.data.shards import TokenShards

Ints = npt.NDArray[np.int64]

POOL_BATCHES = 64
"""Batches of a pool, about; more sort lengths finer, fewer compute faster."""
FEWEST_POOLS = 8
"""A small corpus has smaller pools, or its batches would hold the same pairs in every epoch."""
SHORTEST_MEAN = 4
"""A batch holds at most batch_tokens / 4 pairs, so that the number of its segments has a bound."""


class BatchPlan:
    """Batches of at most `batch_tokens` source and `batch_tokens` target tokens, the end marker counted.

    Where sentences will be cut finer than in the shards, `growth` says by how much: that much room is left free.
    """

    def __init__(self, shards: TokenShards, batch_tokens: int, seed: int, growth: float = 1.0) -> None:
        self.shards, self.batch_tokens, self.seed = shards, batch_tokens, seed
        self._budget = int(batch_tokens / growth)
        longest = shards.index["longest"]
        require(
            self._budget > longest,
            f"train.batch_tokens is {batch_tokens}, but a sentence has {longest} tokens and an end marker; "
            "raise train.batch_tokens or lower data.max_length",
        )
        self.max_pairs = max(1, self._budget // SHORTEST_MEAN)
        batches = len(shards) * (max(shards.mean_lengths) + 1) / self._budget
        fewest = max(1, min(int(batches / 4), max(FEWEST_POOLS, round(batches / POOL_BATCHES))))
        # The last batch of a pool is seldom full by itself: among a few numbers of pools, take what wastes least.
        candidates = range(fewest, max(fewest, min(2 * fewest, fewest + 15, int(batches / 4))) + 1)
        self.pools, self._strata, self.batches_per_pool = min(
            map(self._deal, candidates), key=lambda dealt: dealt[0] * dealt[2]
        )
        if len(shards) // self.pools < self.batches_per_pool:  # a batch might go without a pair
            self.pools, self._strata, self.batches_per_pool = self._deal(1)
        self._pool = lru_cache(maxsize=2)(self._compute_pool)

    def _deal(self, pools: int) -> tuple[int, Ints, int]:
        """So many pools, the order in which they take from the strata, and the batches of each."""
        longest = self.shards.longest_in_runs(pools) + 1
        # By length; among strata of one length those with a longer source and those with a longer target are mixed, so
        # that batches fill up on both sides at once.
        mixed = np.random.Generator(np.random.PCG64(pools)).permutation(len(longest))
        strata = mixed[np.argsort(longest[mixed].max(axis=1), kind="stable")]
        # A pool of the longest pair of every stratum is longer than any real one: what suffices for it always does.
        return pools, strata, len(self._cuts(_running_sums(longest[strata]), self._budget))

    @property
    def batches_per_epoch(self) -> int:
        """How many batches deal out the whole corpus once."""
        return self.pools * self.batches_per_pool

    def batch(self, number: int) -> Ints:
        """The numbers of the pairs in batch `number`, counted from the start of training."""
        pool, place = divmod(number, self.batches_per_pool)
        return self._pool(pool)[place]

    def _compute_pool(self, pool: int) -> list[Ints]:
        epoch, place = divmod(pool, self.pools)
        shift = np.random.Generator(np.random.PCG64([self.seed, epoch])).integers(self.pools, size=len(self._strata))
        ranks = self._strata * self.pools + (place + shift) % self.pools
        ranks = ranks[ranks < len(self.shards)]  # the last stratum may have fewer pairs than there are pools
        cuts = self._even_cuts(_running_sums(self.shards.sorted_lengths(ranks) + 1))
        pairs = self.shards.sorted_pairs(ranks)
        batches = [pairs[start:end] for start, end in zip([0, *cuts[:-1]], cuts, strict=True)]
        order = np.random.Generator(np.random.PCG64([self.seed, epoch, place + 1])).permutation(self.batches_per_pool)
        return [batches[i] for i in order]

    def _cuts(self, sums: list[Ints], budget: float) -> list[int]:
        """Where to end each batch so that neither side exceeds the budget, taking as many pairs as fit."""
        cuts, start, pairs = [], 0, len(sums[0]) - 1
        while start < pairs:
            fitting = min(int(side.searchsorted(int(side[start] + budget), "right")) - 1 for side in sums)
            start = min(max(fitting, start + 1), start + self.max_pairs, pairs)
            cuts.append(start)
        return cuts

    def _even_cuts(self, sums: list[Ints]) -> list[int]:
        """Cuts into exactly `batches_per_pool` batches, none much fuller than another."""
        low, high = max(side[-1] for side in sums) / self.batches_per_pool * 0.98, float(self._budget)
        best = self._cuts(sums, high)
        for _ in range(8):
            middle = (low + high) / 2
            cuts = self._cuts(sums, middle)
            if len(cuts) <= self.batches_per_pool:
                best, high = cuts, middle
            else:
                low = middle
        while len(best) < self.batches_per_pool:  # too few still: split the largest
            sizes = np.diff([0, *best])
            largest = int(sizes.argmax())
            best.insert(largest, best[largest] - int(sizes[largest]) // 2)
        return best


def _running_sums(lengths: Ints) -> list[Ints]:
    """For each side, the tokens before every pair, and all of them."""
    return [np.concatenate([[0], np.cumsum(lengths[:, side])]) for side in (0, 1)]

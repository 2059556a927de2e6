"""The batch plan: which pairs make up which batch, as a pure function of corpus, seed and number.

An epoch is a fresh shuffle of the corpus cut into pools. A pool is sorted by length (section 5.1: "sentence pairs
were batched together by approximate sequence length") and cut into a fixed number of batches of equal token counts,
which come in shuffled order. Because every pool has the same number of batches, the pool of any batch is known
without looking at the ones before it.
"""

from functools import lru_cache

import numpy as np

from transduce.config import require
from transduce.data.permutation import Ints, permuted
from transduce.data.shards import TokenShards

POOL_BATCHES = 64
SHORTEST_MEAN = 4
"""A batch holds at most batch_tokens / 4 pairs, so that the number of its segments has a bound."""


class BatchPlan:
    """Batches of at most `batch_tokens` source and `batch_tokens` target tokens, the end marker counted."""

    def __init__(self, shards: TokenShards, batch_tokens: int, seed: int) -> None:
        longest = shards.index["longest"]
        require(
            batch_tokens > longest,
            f"train.batch_tokens is {batch_tokens}, but a sentence has {longest} tokens and an end marker; "
            "raise train.batch_tokens or lower data.max_length",
        )
        self.shards, self.batch_tokens, self.seed = shards, batch_tokens, seed
        self.max_pairs = batch_tokens // SHORTEST_MEAN
        pool_pairs = POOL_BATCHES * batch_tokens / (max(shards.mean_lengths) + 1)
        self.pools = max(1, round(len(shards) / pool_pairs))
        self.batches_per_pool = self._batches_needed()
        self._pool = lru_cache(maxsize=2)(self._compute_pool)

    @property
    def batches_per_epoch(self) -> int:
        """How many batches deal out the whole corpus once."""
        return self.pools * self.batches_per_pool

    def batch(self, number: int) -> Ints:
        """The numbers of the pairs in batch `number`, counted from the start of training."""
        pool, place = divmod(number, self.batches_per_pool)
        return self._pool(pool)[place]

    def _batches_needed(self) -> int:
        """Enough batches for any pool: the lengths in one pool differ little from those in another."""
        samples = [_running_sums(self._sorted_pool(pool)[1]) for pool in range(min(self.pools, 4))]
        needed = max(len(self._cuts(sums, self.batch_tokens)) for sums in samples)
        return needed if self.pools == 1 else needed + 1

    def _compute_pool(self, pool: int) -> list[Ints]:
        self.shards.release()
        pairs, lengths = self._sorted_pool(pool)
        cuts = self._even_cuts(_running_sums(lengths))
        batches = [pairs[start:end] for start, end in zip([0, *cuts[:-1]], cuts, strict=True)]
        order = np.random.Generator(np.random.PCG64([self.seed, pool])).permutation(self.batches_per_pool)
        return [batches[place] for place in order]

    def _sorted_pool(self, pool: int) -> tuple[Ints, Ints]:
        """The pool's pairs by length, and their lengths with the end marker, one row a pair."""
        epoch, place = divmod(pool, self.pools)
        size = len(self.shards)
        places = np.arange(place * size // self.pools, (place + 1) * size // self.pools)
        pairs = permuted(places, size, key=self.seed * 1_000_003 + epoch)
        lengths = self.shards.lengths(pairs) + 1
        order = np.argsort(lengths[:, 1] * 2**16 + lengths[:, 0], kind="stable")
        return pairs[order], lengths[order]

    def _cuts(self, sums: list[Ints], budget: float) -> list[int]:
        """Where to end each batch so that neither side exceeds the budget, taking as many pairs as fit."""
        cuts, start, pairs = [], 0, len(sums[0]) - 1
        while start < pairs:
            fitting = min(int(np.searchsorted(side, side[start] + budget, "right")) - 1 for side in sums)
            start = min(max(fitting, start + 1), start + self.max_pairs)
            cuts.append(start)
        return cuts

    def _even_cuts(self, sums: list[Ints]) -> list[int]:
        """Cuts into exactly `batches_per_pool` batches, none much fuller than another.

        Should a pool be far longer than its fellows, its longest pairs sit out this epoch.
        """
        low, high = max(side[-1] for side in sums) / self.batches_per_pool * 0.98, float(self.batch_tokens)
        best = self._cuts(sums, high)[: self.batches_per_pool]
        for _ in range(8):
            middle = (low + high) / 2
            cuts = self._cuts(sums, middle)
            if len(cuts) <= self.batches_per_pool:
                best, high = cuts, middle
            else:
                low = middle
        while len(best) < self.batches_per_pool:  # a few pairs only: split the largest batch until there are enough
            sizes = np.diff([0, *best])
            largest = int(sizes.argmax())
            assert sizes[largest] > 1, "a pool never has fewer pairs than batches"
            best.insert(largest, best[largest] - int(sizes[largest]) // 2)
        return best


def _running_sums(lengths: Ints) -> list[Ints]:
    """For each side, the tokens before every pair, and all of them."""
    return [np.concatenate([[0], np.cumsum(lengths[:, side])]) for side in (0, 1)]

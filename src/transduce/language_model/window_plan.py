"""The batch plan of language models: windows of the stream of all documents."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from transduce.config import require
from transduce.data.packing import Example, Ids
from transduce.data.plan import Ints, PartShape
from transduce.data.shards import TokenShards
from transduce.language_model.document_shards import ENDS
from transduce.tokenizers.tokenizer import PAD


class WindowPlan:
    """Batches of windows of `length` tokens of the stream of all documents, for language models.

    The stream is the documents one after another, each ended by EOS, and its end is followed by its beginning. In each
    epoch it is cut into windows from another random place on, and the windows are shuffled. So every token is predicted
    exactly once in an epoch. A window also has the token before its first one.

    If the length does not divide the stream, the last window of an epoch ends with PAD. The last batch of an epoch may
    have fewer windows than the others.
    """

    def __init__(
        self, shards: TokenShards, batch_tokens: int, seed: int, length: int, *, separates: bool = False
    ) -> None:
        """With `separates`, each document in a window is a sequence of its own."""
        require(
            batch_tokens >= length,
            f"train.batch_tokens is {batch_tokens}, but an example has {length} tokens; raise train.batch_tokens or "
            "lower data.max_length",
        )
        self.shards, self.seed, self.length, self.growth = shards, seed, length, 1.0
        self.windows_per_batch = batch_tokens // length
        self.batch_tokens = self.windows_per_batch * length
        self._ends = np.load(shards.folder / ENDS, mmap_mode="r", allow_pickle=False)
        """Number of tokens of the stream up to the end of each row of the shards."""
        self._stream_tokens = int(self._ends[-1])
        self._windows = -(-self._stream_tokens // length)
        """Number of windows in an epoch."""
        self._epoch = lru_cache(maxsize=2)(self._starts)
        self._sums = np.cumsum(np.sort(np.diff(self._ends, prepend=0))) if separates else None
        """Number of tokens of the shortest rows, of the two shortest, and so on."""

    @property
    def batches_per_epoch(self) -> int:
        return -(-self._windows // self.windows_per_batch)

    @property
    def longest(self) -> int:
        return self.length

    def batch(self, number: int) -> Ints:
        """The place in the stream of the first token of each window of batch `number`."""
        return self._batch(number)[0]

    def examples(self, number: int) -> Sequence[Example]:
        """The windows of batch `number`: `length` + 1 ids each."""
        return [(self._window(start, count),) for start, count in zip(*self._batch(number), strict=True)]

    def tokens(self, example: Example) -> list[int]:
        return [len(ids) - 1 for ids in example]  # the first token of a window is not predicted

    def part_shape(self, split: int, processes: int, *, varied: bool) -> PartShape:
        """Filler only takes the place of missing windows."""
        windows = -(-self.windows_per_batch // (split * processes))
        tokens, sequences = windows * self.length, windows
        if self._sums is not None:  # documents that begin in a window: as many as fit, and the last of each window
            sequences += min(len(self._sums), int(np.searchsorted(self._sums, tokens, side="right")) + windows)
        return PartShape(tokens, sequences, filler_segments=0)

    def _batch(self, number: int) -> tuple[Ints, Ints]:
        """The start of each window of a batch, and its number of tokens that are not PAD."""
        epoch, index = divmod(number, self.batches_per_epoch)
        starts, counts = self._epoch(epoch)
        chosen = slice(index * self.windows_per_batch, (index + 1) * self.windows_per_batch)
        return starts[chosen], counts[chosen]

    def _starts(self, epoch: int) -> tuple[Ints, Ints]:
        chance = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        first = int(chance.integers(self._stream_tokens))
        window = chance.permutation(self._windows)
        count = np.minimum(self.length, self._stream_tokens - window * self.length)
        return (first + window * self.length) % self._stream_tokens, count

    def _window(self, start: int, count: int) -> Ids:
        """`count` tokens from `start` on and the token before them, then PAD."""
        before = (start - 1) % self._stream_tokens
        window = np.full(self.length + 1, PAD, np.int64)
        filled = 0
        for ids in self._span(before, before + count + 1):
            window[filled : filled + len(ids)] = ids
            filled += len(ids)
        return window

    def _span(self, start: int, end: int) -> list[npt.NDArray[np.integer]]:
        """The ids of the stream from `start` to `end`, which may be after the end of the stream."""
        total = self._stream_tokens
        if end > total:
            return [*self._span(start, total), *self._span(0, end - total)]
        first, last = np.searchsorted(self._ends, [start, end - 1], side="right").tolist()
        rows = [ids for (ids,) in self.shards.pairs(self.shards.sorted_pairs(np.arange(first, last + 1)))]
        before = int(self._ends[last - 1]) if last else 0
        rows[-1] = rows[-1][: end - before]
        before = int(self._ends[first - 1]) if first else 0
        rows[0] = rows[0][start - before :]
        return rows

"""Memory for KV caches that jobs use one after another, because fresh memory costs a page fault for every 4 KB."""

from collections import defaultdict
from threading import Lock

from transduce.models.arrays import Block

_MOST_BYTES = 1 << 28
"""How much is kept for later jobs: enough for a full batch of ordinary sentences."""


class SpareMemory:
    """Blocks of any content, for all sessions of an engine."""

    def __init__(self) -> None:
        self._spare: defaultdict[int, list[Block]] = defaultdict(list)
        """By their sizes, which are powers of two, so that jobs of similar lengths can use them."""
        self._kept = 0
        self._lock = Lock()

    def take(self, floats: int) -> Block:
        """A block for at least this many numbers."""
        size = 4 << (floats - 1).bit_length() if floats else 0
        with self._lock:
            if self._spare[size]:
                self._kept -= size
                return self._spare[size].pop()
        return Block(size)

    def give_back(self, block: Block) -> None:
        """Keep a block that is not used any more, unless there are enough."""
        with self._lock:
            if self._kept + block.size <= _MOST_BYTES:
                self._kept += block.size
                self._spare[block.size].append(block)

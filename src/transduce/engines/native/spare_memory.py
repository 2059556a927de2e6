"""Memory for KV caches that jobs use one after another, because fresh memory costs a page fault for every 4 KB."""

from collections import defaultdict
from threading import Lock

import numpy as np

from transduce.models.given_outputs import Floats

_MOST_FLOATS = 1 << 26
"""How much is kept for later jobs: 256 MB, enough for a full batch of ordinary sentences."""


class SpareMemory:
    """Arrays without contents, for all sessions of an engine."""

    def __init__(self) -> None:
        self._spare: defaultdict[int, list[Floats]] = defaultdict(list)
        """By their sizes, which are powers of two, so that jobs of similar lengths can use them."""
        self._kept = 0
        self._lock = Lock()

    def take(self, size: int) -> Floats:
        """An array of at least this many numbers."""
        size = 1 << (size - 1).bit_length() if size else 0
        with self._lock:
            if self._spare[size]:
                self._kept -= size
                return self._spare[size].pop()
        return np.empty(size, np.float32)

    def give_back(self, array: Floats) -> None:
        """Keep an array that is not used any more, unless there are enough."""
        with self._lock:
            if self._kept + array.size <= _MOST_FLOATS:
                self._kept += array.size
                self._spare[array.size].append(array)

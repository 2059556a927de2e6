"""Reservoir sampling: a uniform sample of a stream of unknown length."""

import random
from typing import Generic, TypeVar

T = TypeVar("T")


class Reservoir(Generic[T]):
    """Keeps `size` of the items that it is offered, all with the same probability; the random seed is fixed."""

    def __init__(self, size: int) -> None:
        self.kept: list[T] = []
        self._size, self._offered = size, 0
        self._rng = random.Random(1)

    def offer(self, item: T) -> None:
        """Keep this item, instead of another one, or discard it."""
        self._offered += 1
        if len(self.kept) < self._size:
            self.kept.append(item)
        elif (index := self._rng.randrange(self._offered)) < self._size:
            self.kept[index] = item

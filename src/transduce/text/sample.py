"""An even sample of a stream whose length nobody knows yet."""

import random
from typing import Generic, TypeVar

T = TypeVar("T")


class Reservoir(Generic[T]):
    """Keeps `size` of the things it is offered, each with the same chance; the same ones every time."""

    def __init__(self, size: int) -> None:
        self.kept: list[T] = []
        self._size, self._offered = size, 0
        self._chance = random.Random(1)

    def offer(self, thing: T) -> None:
        """Keep this thing, perhaps instead of another."""
        self._offered += 1
        if len(self.kept) < self._size:
            self.kept.append(thing)
        elif (place := self._chance.randrange(self._offered)) < self._size:
            self.kept[place] = thing

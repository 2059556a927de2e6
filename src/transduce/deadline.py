"""Deadlines of work that a client waits for: whoever waits may cancel it, and its loops call `check_deadline`."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from transduce.errors import DataError


class OutOfTimeError(Exception):
    """The work is not finished in time, or nobody waits for it any more."""


class Deadline:
    """The time until which work may run, and the number of objects that it may make."""

    def __init__(self, seconds: float, objects: float = math.inf) -> None:
        self._end = monotonic() + seconds
        self._objects = self._most = objects

    def cancel(self) -> None:
        """End the work at its next check; may be called from any thread."""
        self._end = -math.inf

    def check(self, objects: int) -> None:
        if monotonic() > self._end:
            raise OutOfTimeError
        self._objects -= objects
        if self._objects < 0:
            raise DataError(f"more than {self._most:,} elements, where a text counts as two; divide the file")

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within this context, `check_deadline` of this thread checks this deadline."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


_CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def check_deadline(objects: int = 0) -> None:
    """Raise OutOfTimeError if the time of the work in progress is over; work without a deadline has no end.

    Loops whose length depends on untrusted input call this. `objects` are those made since the last call that stay in
    memory: a DataError is raised if there are too many.
    """
    if deadline := _CURRENT.get():
        deadline.check(objects)

"""Ctrl-C and SIGTERM ask a run to stop at the end of its step; a second signal ends it at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """A signal came during work that may be broken off."""


class StopRequest:
    """Which signal asked to stop, if one did."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._interrupts = False

    def __bool__(self) -> bool:
        return self.signal is not None

    def take(self, number: int) -> None:
        """Note a signal; break off what may be broken off."""
        self.signal = number
        if self._interrupts:
            raise Interrupted

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Inside, a signal raises `Interrupted` at once: for work that can be done again without loss."""
        self._interrupts = True
        try:
            if self:
                raise Interrupted
            yield
        finally:
            self._interrupts = False
        if self:  # what was raised may have been swallowed, as some modules do while they are imported
            raise Interrupted


@contextmanager
def stop_on_signals(*, many_processes: bool = False) -> Iterator[StopRequest]:
    """Inside, the signals set the request instead of ending the process.

    Each of many processes gets a Ctrl-C twice, from the terminal and from torchrun: there a second means nothing.
    """
    request = StopRequest()

    def handle(number: int, _: FrameType | None) -> None:
        if not request:
            request.take(number)
        elif not many_processes:
            raise KeyboardInterrupt

    previous = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            previous[number] = signal.signal(number, handle)
        except ValueError:  # not the main thread: its owner decides when to stop
            break
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

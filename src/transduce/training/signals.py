"""Ctrl-C and SIGTERM request a stop at the end of the current step; a second signal ends the process at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """A signal arrived during work that can be interrupted."""


class StopRequest:
    """The signal that requested a stop, if there was one."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._interrupts = False

    def __bool__(self) -> bool:
        return self.signal is not None

    def take(self, number: int) -> None:
        """Record a signal; raise `Interrupted` if the current work can be interrupted."""
        self.signal = number
        if self._interrupts:
            raise Interrupted

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within this context, a signal raises `Interrupted` at once: for work that can be repeated without loss."""
        self._interrupts = True
        try:
            if self:
                raise Interrupted
            yield
        finally:
            self._interrupts = False
        if self:  # the exception may have been swallowed, as some modules do while they are imported
            raise Interrupted


@contextmanager
def stop_on_signals(*, many_processes: bool = False) -> Iterator[StopRequest]:
    """Within this context, the signals set the request instead of ending the process.

    With several processes, each receives Ctrl-C twice, from the terminal and from torchrun, so a second one is ignored.
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

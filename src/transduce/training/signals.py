"""Ctrl-C and SIGTERM ask a run to stop at the end of its step; a second signal ends it at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class StopRequest:
    """Which signal asked to stop, if one did."""

    signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Inside, the signals set the request instead of ending the process."""
    request = StopRequest()

    def handle(number: int, _: FrameType | None) -> None:
        if request:
            raise KeyboardInterrupt
        request.signal = number

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

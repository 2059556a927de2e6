"""Loading torch and all that needs it, which takes seconds."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, SIGTERM and Ctrl-C end the process at once, as nothing is open yet.

    What a handler raises while modules are imported may be swallowed by them, and the signal would be lost.
    """
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

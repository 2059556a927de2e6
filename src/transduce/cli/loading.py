"""Importing torch and the modules that need it, which takes seconds."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and Ctrl-C end the process immediately inside the block; nothing is open yet.

    An exception that a signal handler raises during an import may be swallowed by the imported module.
    """
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

"""Progress of a command that works through texts or sound, on stderr if that is a terminal."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

_EVERY_SECONDS = 0.5


class ProgressBar:
    """Counts lines or texts; in a terminal it shows their number, the throughput and the time left.

    `noun` is what is counted, `unit` what the throughput counts.
    """

    def __init__(
        self, total: Callable[[], int | None], done: int, hidden: bool, noun: str = "lines", unit: str = "sentences"
    ) -> None:
        self._total, self._done, self._noun, self._unit = total, done, noun, unit
        self._hidden = hidden or not sys.stderr.isatty()
        self._shown = self._flushed = 0.0
        self._live: Any = None

    def __enter__(self) -> "ProgressBar":
        if not self._hidden:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(bar_width=20), MofNCompleteColumn(), TextColumn("{task.description}"))
            self._live = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._task = self._live.add_task("", total=self._total(), completed=self._done)
            self._live.start()
        self._first, self._began = self._done, time.monotonic()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def advance(self, count: int = 1) -> None:
        """Count what is done."""
        self._done += count
        now = time.monotonic()
        if self._live and now - self._shown >= _EVERY_SECONDS:
            self._shown = now
            speed = (self._done - self._first) / max(now - self._began, 1e-9)
            self._live.update(
                self._task, completed=self._done, description=f"{self._noun}  {speed:,.0f} {self._unit}/s"
            )

    def flush_due(self) -> bool:
        """True every half second, when the output should be flushed."""
        now = time.monotonic()
        if now - self._flushed < _EVERY_SECONDS:
            return False
        self._flushed = now
        return True

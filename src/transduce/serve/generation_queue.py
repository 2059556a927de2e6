"""The generation thread: continues the prompts of several requests in turn.

The requests share the thread's time. Small ones have places of their own and a larger share, so that they do not wait
for large ones.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias, Union

from transduce.serve.limits import QueueFullError, error_location

if TYPE_CHECKING:
    from transduce.language_model.generator import GenerationEvent, TextScore

_ACTIVE = 8
"""Number of small, and of large, requests that are continued in turn; the others wait."""
_SMALL = 256
"""Maximum number of tokens of a small request: those of its prompts and of all its outputs."""
_WEIGHT = 2
"""How much of `GenerationJob.used_seconds` a second of a large request is."""

Result: TypeAlias = Union["GenerationEvent", "list[TextScore]"]
"""A token, or the scores of the prompts."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class GenerationJob:
    """The work of one request."""

    results: Iterator[Result]
    """Advanced on the thread of the queue only."""
    deliver: Callable[[Result | Exception | None], None]
    """Called on the thread of the queue with every result, and after the last one with None."""
    tokens: int
    """Upper bound on the number of tokens of the prompts and all outputs."""
    used_seconds: float = 0.0
    """Weighted time of the thread used so far; the job with the least is next."""

    @property
    def small(self) -> bool:
        """Whether the request does not wait for large ones."""
        return self.tokens <= _SMALL


class GenerationQueue:
    """Accepts jobs from any thread, and delivers results from its own, which starts with the first job."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._changed = threading.Condition()
        self._active: deque[GenerationJob] = deque()
        self._waiting: deque[GenerationJob] = deque()
        self._dropped: set[GenerationJob] = set()
        self._least_used = 0.0
        """Weighted seconds that the job chosen last had used when it was chosen."""
        self._closing = False
        self._step_started: float | None = None
        self._thread: threading.Thread | None = None

    def submit(self, job: GenerationJob) -> None:
        """Add a job; raises `QueueFullError` if too many wait."""
        with self._changed:
            if len(self._waiting) >= self._max_waiting:
                raise QueueFullError
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="transduce-generation", daemon=True)
                self._thread.start()
            self._changed.notify()

    def drop(self, job: GenerationJob) -> None:
        """Stop working on a job; has no effect if it is finished."""
        with self._changed:
            self._dropped.add(job)
            self._changed.notify()

    @property
    def step_seconds(self) -> float:
        """How long the step that is running has taken so far."""
        started = self._step_started
        return 0.0 if started is None else perf_counter() - started

    def close(self, seconds: float | None = None) -> None:
        """Finish all jobs, then end the thread; give up after this time."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread:
            self._thread.join(seconds)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            result: Result | Exception | None
            start = self._step_started = perf_counter()
            try:
                result = next(job.results, None)
            except Exception as error:
                _log.error("generation failed: %s", error_location(error))
                result = error
            job.used_seconds += (perf_counter() - start) * (1 if job.small else _WEIGHT)
            self._step_started = None
            job.deliver(result)
            if result is not None and not isinstance(result, Exception):
                with self._changed:
                    self._active.append(job)

    def _next(self) -> GenerationJob | None:
        """The job whose turn it is; None if the queue is closed and empty."""
        with self._changed:
            while True:
                for jobs in (self._active, self._waiting):
                    for job in [job for job in jobs if job in self._dropped]:
                        jobs.remove(job)
                self._dropped.clear()
                for small in (True, False):
                    places = _ACTIVE - sum(job.small == small for job in self._active)
                    for job in [job for job in self._waiting if job.small == small][:places]:
                        self._waiting.remove(job)
                        job.used_seconds = self._least_used  # waiting earns no priority
                        self._active.append(job)
                if self._active:
                    job = min(self._active, key=lambda job: job.used_seconds)
                    self._active.remove(job)
                    self._least_used = job.used_seconds
                    return job
                if self._closing:
                    return None
                self._changed.wait()

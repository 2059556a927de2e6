"""The generation thread: continues the prompts of several requests in turn.

Small requests together have a larger share of the thread's time than large ones together, and places of their own: a
small one waits for one step of a large one at most. Requests of one size share their time.
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
"""How many seconds a second of a large request counts."""

Result: TypeAlias = Union["GenerationEvent", "list[TextScore]"]
"""A token, or the scores of the prompts."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class GenerationJob:
    """The work of one request."""

    results: Iterator[Result | None]
    """Advanced on the thread of the queue only; None is a step without a result."""
    deliver: Callable[[Result | Exception | None], None]
    """Called on the thread of the queue with every result, and after the last one with None."""
    tokens: int
    """Upper bound on the number of tokens of the prompts and all outputs."""
    used_seconds: float = 0.0
    """Time of the thread used so far; of the jobs of its size, the one with the least is next."""

    @property
    def small(self) -> bool:
        """Whether the request does not wait for large ones."""
        return self.tokens <= _SMALL


class GenerationQueue:
    """Accepts jobs from any thread, and delivers results from its own, which starts with the first job."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._changed = threading.Condition()
        self._active: dict[bool, list[GenerationJob]] = {True: [], False: []}
        """The small and the large jobs that are continued in turn."""
        self._used = {True: 0.0, False: 0.0}
        """Weighted time of the thread that all small, and all large, jobs have used so far."""
        self._waiting: deque[GenerationJob] = deque()
        self._dropped: set[GenerationJob] = set()
        self._least_used = 0.0
        """Weighted seconds that the jobs of the size chosen last had used when it was chosen."""
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
            result: Result | Exception | None = None
            ended = True
            start = self._step_started = perf_counter()
            try:
                result = next(job.results)
                ended = False
            except StopIteration:
                pass
            except Exception as error:
                _log.error("generation failed: %s", error_location(error))
                result = error
            seconds = perf_counter() - start
            job.used_seconds += seconds
            self._used[job.small] += seconds * (1 if job.small else _WEIGHT)
            self._step_started = None
            if ended or result is not None:
                job.deliver(result)
            if not ended:
                with self._changed:
                    self._active[job.small].append(job)

    def _next(self) -> GenerationJob | None:
        """The job whose turn it is; None if the queue is closed and empty."""
        with self._changed:
            while True:
                for jobs in (*self._active.values(), self._waiting):
                    for job in [job for job in jobs if job in self._dropped]:
                        jobs.remove(job)
                self._dropped.clear()
                for small, active in self._active.items():
                    for job in [job for job in self._waiting if job.small == small][: _ACTIVE - len(active)]:
                        self._waiting.remove(job)
                        if not active:  # idle time earns no priority
                            self._used[small] = max(self._used[small], self._least_used)
                        job.used_seconds = min((other.used_seconds for other in active), default=0.0)
                        active.append(job)
                if sizes := [small for small, active in self._active.items() if active]:
                    small = min(sizes, key=self._used.__getitem__)
                    self._least_used = self._used[small]
                    job = min(self._active[small], key=lambda job: job.used_seconds)
                    self._active[small].remove(job)
                    return job
                if self._closing:
                    return None
                self._changed.wait()

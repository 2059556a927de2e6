"""The queues of language models: requests of one size are continued in turn, on the scheduler's thread."""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, TypeAlias, Union

from transduce.serve.limits import error_location

if TYPE_CHECKING:
    from transduce.language_model.generator import GenerationEvent, TextScore

_ACTIVE = 8
"""Number of requests of a size that are continued in turn; the others wait."""
_SMALL = 256
"""Maximum number of tokens of a small request: those of its prompts and of all its outputs."""

Result: TypeAlias = Union["GenerationEvent", "list[TextScore]"]
"""A token, or the scores of the prompts."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class GenerationJob:
    """The work of one request."""

    results: Iterator[Result | None]
    """Advanced on the scheduler's thread only; None is a step without a result."""
    deliver: Callable[[Result | Exception | None], None]
    """Called on the scheduler's thread with every result, and after the last one with None."""
    tokens: int
    """Upper bound on the number of tokens of the prompts and all outputs."""
    cache_bytes: int = 0
    """Maximum size of its KV caches."""
    used_seconds: float = 0.0
    """Time of the thread used so far; of the jobs of its size, the one with the least is next."""

    @property
    def small(self) -> bool:
        return self.tokens <= _SMALL

    def advance(self) -> bool:
        """Work for one step and deliver its result; returns whether there may be another one."""
        try:
            if (result := next(self.results)) is not None:
                self.deliver(result)
            return True
        except StopIteration:
            self.deliver(None)
        except Exception as error:
            _log.error("generation failed: %s", error_location(error))
            self.deliver(error)
        return False


class GenerationQueue:
    """The jobs of one size. Calls require the scheduler's lock."""

    def __init__(self, weight: int, cache_bytes: float = inf) -> None:
        self.weight, self.used_seconds = weight, 0.0
        """As those of an `EngineQueue`."""
        self._cache_bytes = cache_bytes
        """Maximum size of the KV caches of the jobs that are continued."""
        self._active: list[GenerationJob] = []
        self._waiting: deque[GenerationJob] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._active or self._waiting)

    @property
    def waiting(self) -> int:
        """Number of jobs that are not continued in turn yet."""
        return len(self._waiting)

    def enqueue(self, job: GenerationJob) -> None:
        self._waiting.append(job)

    def remove(self, job: GenerationJob) -> None:
        """Remove a job, unless it has been removed before."""
        for jobs in (self._active, self._waiting):
            if job in jobs:
                jobs.remove(job)

    def next_job(self) -> GenerationJob:
        """The job whose turn it is."""
        while self._waiting and len(self._active) < _ACTIVE:
            caches = sum(job.cache_bytes for job in (*self._active, self._waiting[0]))
            if self._active and caches > self._cache_bytes:
                break
            job = self._waiting.popleft()
            job.used_seconds = min((other.used_seconds for other in self._active), default=0.0)
            self._active.append(job)
        return min(self._active, key=lambda job: job.used_seconds)

"""A request queue of one engine, with continuous batching.

An engine has a queue for each size of requests, so that small ones do not wait for large ones. Whenever the token
budget has room, the queue's session takes another job: usually of the request with the least remaining work, sometimes
of the oldest one; among the largest requests, one job of each in turn.

If the engine cannot mix search options, requests with other options need another session: while they wait, the current
session starts at most one budget of jobs and then runs until it is empty.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from transduce.search.decoder import Hypothesis
from transduce.search.engine import Engine, Job, Session
from transduce.serve.scheduled_request import JobHypotheses, ScheduledRequest

_TOKEN_BUDGET = 131_072
"""Token budget (source tokens times rows of the beam) of an engine that does not limit its batch."""
_PLAIN_TOKEN_BUDGET = 512
"""Upper bound for `plain`, whose steps take longer: all other queues wait for a step."""
_SHARES = (128, 32, 8)
"""Sizes of requests: those of size n need at most 1 / _SHARES[n] of the budget; the others are the largest."""
_RUNNING = 4
"""Number of requests of its largest size that a queue runs at once: each slows down the others."""
_OLDEST_EVERY = 4
"""Of this many jobs, or sessions, one is of the oldest request; the others are of the one with the least work."""


@dataclass(frozen=True)
class EngineStep:
    """One step of a session with the jobs that enter and leave it; runs without the scheduler's lock."""

    session: Session
    added: Sequence[tuple[int, Job]]
    dropped: Sequence[int]

    def run(self) -> list[tuple[int, list[Hypothesis]]]:
        """Update the session and take one step; returns the jobs that are finished."""
        if self.added:
            self.session.add(sorted(self.added, key=lambda item: -len(item[1].tokens)))
        if self.dropped:
            self.session.drop(self.dropped)
        return self.session.step() if self.session.busy else []


class EngineQueue:
    """Waiting and running requests of one size of one engine. Calls require the scheduler's lock."""

    def __init__(self, engine: Engine, size: int = len(_SHARES)) -> None:
        self._engine, self._small = engine, size < len(_SHARES)
        self._budget = _budget(engine)
        if self._small:
            self._budget = min(self._budget, self._budget * _RUNNING // _SHARES[size])
        self._choices = 0
        """Number of times that a request or group was chosen."""
        self.weight = 1 + size
        """How much of `used_seconds` a second is: small requests get more time than large ones."""
        self.used_seconds = 0.0
        """Weighted time of the scheduler's thread used so far; the queue with the least is next."""
        self._waiting: dict[Hashable, deque[ScheduledRequest]] = {}
        """Requests with jobs that have not started, by session group; the first group has the next session."""
        self._group: Hashable = None
        self._session: Session | None = None
        self._session_cost = 0
        """Cost of all jobs that the current session has started."""
        self._running_cost = 0
        """Cost of the jobs that are running."""
        self._running: dict[int, tuple[ScheduledRequest, int]] = {}
        """Request and job index by the key of the job in the session."""
        self._dropped: list[int] = []
        """Keys to drop from the session at its next step."""

    @property
    def busy(self) -> bool:
        """Whether there are waiting or running jobs."""
        return bool(self._waiting or self._session)

    @property
    def waiting(self) -> int:
        """Number of requests with jobs in the queue."""
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        """Number of jobs in the session."""
        return len(self._running)

    def enqueue(self, request: ScheduledRequest) -> None:
        """Append a request to the queue."""
        self._waiting.setdefault(self._group_of(request), deque()).append(request)

    def drop(self, request: ScheduledRequest) -> int:
        """Remove a request from the queue, and from the session at its next step; returns the number of its jobs."""
        removed = self._remove_waiting(request)
        for key in [key for key, (owner, _) in self._running.items() if owner is request]:
            self._remove_running(key)
            self._dropped.append(key)
            removed += 1
        return removed

    def next_step(self) -> EngineStep:
        """Fill the session, or a new one, from its group."""
        if self._session is None:
            self._group = self._next_group()
            self._session, self._session_cost = self._engine.start_session(self._waiting[self._group][0].config), 0
        requests = self._waiting.pop(self._group, deque())
        added: list[tuple[int, Job]] = []
        while requests and not (self._waiting and self._session_cost >= self._budget):
            request = self._next_request(requests)
            index = request.started
            job, key = request.jobs[index], request.first_key + index
            cost = request.cost(job)
            if self._running and self._running_cost + cost > self._budget:
                break
            self._choices += 1
            self._running[key] = (request, index)
            added.append((key, replace(job, options=request.config) if self._engine.mixed_options else job))
            self._running_cost += cost
            self._session_cost += cost
            request.started += 1
            request.remaining -= cost
            if request.started == len(request.jobs):
                requests.remove(request)
            elif not self._small:
                requests.rotate(-1)
        if requests:
            self._waiting[self._group] = requests  # behind the other groups
        dropped, self._dropped = self._dropped, []
        return EngineStep(self._session, added, dropped)

    def _next_group(self) -> Hashable:
        """The group that has waited longest or, of small requests, usually that with the least work."""
        if not self._small or self._choose_oldest():
            return next(iter(self._waiting))
        return min(self._waiting, key=lambda group: min(map(_remaining, self._waiting[group])))

    def _next_request(self, requests: deque[ScheduledRequest]) -> ScheduledRequest:
        """The first request or, of small requests, usually the one with the least work."""
        return requests[0] if not self._small or self._choose_oldest() else min(requests, key=_remaining)

    def _choose_oldest(self) -> bool:
        return self._choices % _OLDEST_EVERY == _OLDEST_EVERY - 1

    def _group_of(self, request: ScheduledRequest) -> Hashable:
        return None if self._engine.mixed_options else request.session_group

    def finish(self, results: list[tuple[int, list[Hypothesis]]]) -> dict[ScheduledRequest, JobHypotheses]:
        """Group finished jobs by request; those of requests dropped in the meantime are left out."""
        finished: dict[ScheduledRequest, JobHypotheses] = {}
        for key, hypotheses in results:
            if key in self._running:
                request, index = self._remove_running(key)
                finished.setdefault(request, []).append((index, hypotheses))
        if self._session and not self._session.busy:
            self._end_session()
        return finished

    def fail(self) -> list[ScheduledRequest]:
        """Abandon the session; returns the requests that were running in it, which are removed."""
        requests = list(dict.fromkeys(request for request, _ in self._running.values()))
        for request in requests:
            self._remove_waiting(request)
        with suppress(Exception):  # the session has failed already
            if self._session:
                self._session.drop(list(self._running))
        self._running.clear()
        self._running_cost = 0
        self._end_session()
        return requests

    def _remove_waiting(self, request: ScheduledRequest) -> int:
        group = self._group_of(request)
        requests = self._waiting.get(group)
        if requests is None or request not in requests:
            return 0
        requests.remove(request)
        if not requests:
            del self._waiting[group]
        return len(request.jobs) - request.started

    def _remove_running(self, key: int) -> tuple[ScheduledRequest, int]:
        request, index = self._running.pop(key)
        self._running_cost -= request.cost(request.jobs[index])
        return request, index

    def _end_session(self) -> None:
        self._session = None
        self._dropped.clear()  # keys are valid only within one session


def size_of(request: ScheduledRequest, engine: Engine) -> int:
    """Which queue a request belongs to: 0 has the smallest requests."""
    if not engine.several_sessions:
        return len(_SHARES)
    budget = _budget(engine)
    return next((size for size, share in enumerate(_SHARES) if request.remaining * share <= budget), len(_SHARES))


def _remaining(request: ScheduledRequest) -> int:
    return request.remaining


def _budget(engine: Engine) -> int:
    budget = engine.batch_tokens or _TOKEN_BUDGET
    return min(budget, _PLAIN_TOKEN_BUDGET) if engine.name == "plain" else budget

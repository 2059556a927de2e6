"""A request queue of one engine, with continuous batching.

Whenever the token budget has room, the queue's session takes one job of each waiting request in turn. Requests with
other search options need another session: while they wait, the current session starts at most one budget of jobs and
then runs until it is empty. An engine has a second queue for small requests, which therefore do not wait for a session
of large ones.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from transduce.engines.engine import Engine, Job, Session
from transduce.search.decoder import Hypothesis
from transduce.serve.scheduled_request import JobHypotheses, ScheduledRequest

_TOKEN_BUDGET = 131_072
"""Token budget (source tokens times rows of the beam) of an engine that does not limit its batch."""
_PLAIN_TOKEN_BUDGET = 512
"""Upper bound for `plain`, whose steps take longer: all other queues wait for a step."""
_SMALL_SHARE = 32
"""A request is small if it needs at most 1 / _SMALL_SHARE of the budget."""
_OLDEST_EVERY = 4
"""Of this many sessions of small requests, one is for the oldest request; the others are for the cheapest one."""


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
    """Waiting and running requests of one engine, either small or large ones. Calls require the scheduler's lock."""

    def __init__(self, engine: Engine, *, small: bool = False) -> None:
        self._engine, self._small, self._sessions = engine, small, 0
        self._budget = _budget(engine)
        self.used_seconds = 0.0
        """Time of the scheduler's thread used so far; the queue with the least is next."""
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
        self._waiting.setdefault(request.session_group, deque()).append(request)

    def drop(self, request: ScheduledRequest) -> int:
        """Remove a request from the queue, and from the session at its next step; returns the number of its jobs."""
        removed = self._remove_waiting(request)
        for key in [key for key, (owner, _) in self._running.items() if owner is request]:
            self._remove_running(key)
            self._dropped.append(key)
            removed += 1
        return removed

    def next_step(self) -> EngineStep:
        """Fill the session, or a new one, from its group: one job of each request in turn."""
        if self._session is None:
            self._group = self._next_group()
            self._session, self._session_cost = self._engine.start_session(self._waiting[self._group][0].config), 0
            self._sessions += 1
        requests = self._waiting.pop(self._group, deque())
        added: list[tuple[int, Job]] = []
        while requests and not (self._waiting and self._session_cost >= self._budget):
            request, index = requests[0], requests[0].started
            job, key = request.jobs[index], request.first_key + index
            cost = request.cost(job)
            if self._running and self._running_cost + cost > self._budget:
                break
            self._running[key] = (request, index)
            added.append((key, job))
            self._running_cost += cost
            self._session_cost += cost
            request.started += 1
            requests.popleft()
            if request.started < len(request.jobs):
                requests.append(request)
        if requests:
            self._waiting[self._group] = requests  # behind the other groups
        dropped, self._dropped = self._dropped, []
        return EngineStep(self._session, added, dropped)

    def _next_group(self) -> Hashable:
        """The group that has waited longest or, of small requests, usually that of the cheapest request."""
        if self._small and self._sessions % _OLDEST_EVERY:
            return min(self._waiting, key=lambda group: min(map(total_cost, self._waiting[group])))
        return next(iter(self._waiting))

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
        requests = self._waiting.get(request.session_group)
        if requests is None or request not in requests:
            return 0
        requests.remove(request)
        if not requests:
            del self._waiting[request.session_group]
        return len(request.jobs) - request.started

    def _remove_running(self, key: int) -> tuple[ScheduledRequest, int]:
        request, index = self._running.pop(key)
        self._running_cost -= request.cost(request.jobs[index])
        return request, index

    def _end_session(self) -> None:
        self._session = None
        self._dropped.clear()  # keys are valid only within one session


def is_small(request: ScheduledRequest, engine: Engine) -> bool:
    """Whether a request needs so little of the budget that it is done in a few steps."""
    return engine.several_sessions and total_cost(request) * _SMALL_SHARE <= _budget(engine)


def total_cost(request: ScheduledRequest) -> int:
    """The tokens of the budget that all jobs of a request need."""
    return sum(map(request.cost, request.jobs))


def _budget(engine: Engine) -> int:
    budget = engine.batch_tokens or _TOKEN_BUDGET
    return min(budget, _PLAIN_TOKEN_BUDGET) if engine.name == "plain" else budget

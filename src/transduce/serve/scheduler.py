"""The scheduler: one thread that translates the sentences of many requests on one device, with continuous batching.

A request is a list of jobs, one for each sentence. Every engine has a queue for each size of requests, so that small
ones do not wait for large ones. Whenever the token budget of a queue has room, its session takes another job: usually
of the request with the least remaining work, sometimes of the oldest one; among the largest requests, one job of each
in turn. If the engine cannot mix search options, requests with other options need another session: while they wait,
the current session starts at most one budget of jobs and then runs until it is empty.

The queues share the thread's time rather than its steps, because one step of an engine may take as long as a hundred of
another's. A queue of larger requests has a smaller share. Large requests therefore delay a small one much less than
they would in one queue, and none waits forever.

What follows a search, the completion of jobs, runs on the same thread in small steps and counts as time of the same
queue: adding text that outputs lack, aligning them and estimating their confidence. The searches that it needs are
requests of their own.

Language models have two queues of their own (`generation_queue.py`) on the same thread: two threads that compute at the
same time would wait for one another in every step, a small request behind each step of a large one.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic, perf_counter

from transduce.search.decoder import Hypothesis
from transduce.search.engine import Engine, Job, Session, output_limit
from transduce.search.options import SearchConfig
from transduce.serve.generation_queue import GenerationJob, GenerationQueue
from transduce.serve.limits import QueueFullError, error_location
from transduce.serve.metrics import ServerMetrics
from transduce.translation.stages.search import Searches
from transduce.translation.text import Segment
from transduce.translation.translation import Translation
from transduce.translation.translator import Confidence, Translator

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
_COMPLETED_TOKENS = 128
"""Number of output tokens that are aligned, and whose confidence is estimated, in one step."""

JobHypotheses = list[tuple[int, list[Hypothesis]]]
"""The index of each finished job within its request, with its hypotheses."""
JobTranslations = list[tuple[int, list[Translation]]]
"""The same with decoded translations."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ScheduledRequest:
    """The jobs of one request, with the options of its search."""

    translator: Translator
    config: SearchConfig
    jobs: Sequence[Segment]
    aligned: Collection[int]
    """Indices of the jobs whose outputs are aligned."""
    deliver: Callable[[JobTranslations | Exception], None]
    """Called on the scheduler's thread with the jobs that have just finished, or with an error."""
    first_key: int = 0
    """Key of the first job in the engine's session; the other jobs have the keys that follow."""
    started: int = 0
    """Number of jobs that have left the queue."""
    confidence: Confidence = False
    coverage: bool = False
    """Whether the source words that outputs seem to lack are searched for."""
    texts: Sequence[range] = ()
    """Indices of the jobs of each text, whose outputs are completed together; by default, each job is a text."""
    completion: "Completion | None" = None
    """What these searches are part of; None for a request of a client."""
    dropped: bool = False
    """Whether nobody waits for it any more."""
    remaining: int = field(init=False)
    """Cost of the jobs that are still in the queue."""

    def __post_init__(self) -> None:
        self.remaining = sum(map(self.cost, self.jobs))
        self._text_of_job = {job: text for text in self.texts for job in text}
        self._waiting_for: dict[range, JobHypotheses] = {}
        """What is found of texts with jobs that are not finished."""

    def cost(self, job: Job) -> int:
        """The tokens of the budget that a job needs."""
        forced = min(self.config.min_length, output_limit(job, self.config, None))
        return (max(len(job.tokens), len(job.prefix), forced) + 1) * self.config.rows

    @property
    def client_request(self) -> "ScheduledRequest":
        """The request of a client that this belongs to."""
        return self.completion.request if self.completion else self

    def completions(self, finished: JobHypotheses) -> "Iterator[Completion]":
        """What follows the search of jobs, for texts of which all jobs are finished."""
        complete: list[JobHypotheses] = []
        for index, best in finished:
            text = self._text_of_job.get(index, range(index, index + 1))
            found = self._waiting_for.setdefault(text, [])
            found.append((index, best))
            if len(found) == len(text):
                complete.append(sorted(self._waiting_for.pop(text), key=lambda job: job[0]))
        for align in (False, True):
            if texts := [jobs for jobs in complete if (jobs[0][0] in self.aligned) == align]:
                yield Completion(self, align, texts)


class Completion:
    """Makes translations of the hypotheses of jobs in small steps, with searches in between."""

    def __init__(self, request: ScheduledRequest, align: bool, texts: Sequence[JobHypotheses]) -> None:
        self.request, self._indices = request, [index for jobs in texts for index, _ in jobs]
        self._work: Searches[list[list[Translation]]] = request.translator.translation_searches(
            [[request.jobs[index] for index, _ in jobs] for jobs in texts],
            [[best for _, best in jobs] for jobs in texts],
            request.config,
            align,
            request.confidence,
            _COMPLETED_TOKENS,
            request.coverage,
        )
        self._hypotheses: dict[int, list[Hypothesis]] | None = None
        """What the searches have found so far; None before the first step."""
        self._needed = 0
        self.translations: JobTranslations | None = None
        """When the work is finished, the translations of the jobs."""

    def add(self, found: JobHypotheses) -> bool:
        """Add results of the searches; returns whether these were the last ones."""
        assert self._hypotheses is not None
        self._hypotheses |= dict(found)
        return len(self._hypotheses) == self._needed

    def advance(self) -> ScheduledRequest | None:
        """Work for one step; returns the searches that the next one needs."""
        request = self.request
        try:
            if self._hypotheses is None:
                jobs, config = next(self._work)
            else:
                jobs, config = self._work.send([self._hypotheses[index] for index in range(self._needed)])
        except StopIteration as result:
            self.translations = list(zip(self._indices, result.value, strict=True))
            return None
        self._hypotheses, self._needed = {}, len(jobs)
        return (
            ScheduledRequest(request.translator, config, jobs, (), request.deliver, completion=self) if jobs else None
        )


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
        self.size, self.weight = size, 1 + size
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
        self._completions: deque[Completion] = deque()
        """What can be continued, in turns with the steps of the session."""
        self._session_is_next = False

    @property
    def busy(self) -> bool:
        """Whether there are waiting or running jobs, or such as are being completed."""
        return bool(self._waiting or self._session or self._completions)

    @property
    def waiting(self) -> int:
        """Number of requests of clients with jobs in the queue."""
        return sum(request.completion is None for requests in self._waiting.values() for request in requests)

    @property
    def running(self) -> int:
        """Number of jobs in the session."""
        return len(self._running)

    def enqueue(self, request: ScheduledRequest) -> None:
        self._waiting.setdefault(self._group_of(request), deque()).append(request)

    def drop(self, request: ScheduledRequest) -> int:
        """Remove a request from the queue, and from the session at its next step; returns the number of its jobs."""
        removed = 0
        for group, requests in list(self._waiting.items()):
            for other in [other for other in requests if other.client_request is request]:
                requests.remove(other)
                removed += len(other.jobs) - other.started
            if not requests:
                del self._waiting[group]
        for key in [key for key, (other, _) in self._running.items() if other.client_request is request]:
            self._remove_running(key)
            self._dropped.append(key)
            removed += 1
        self._completions = deque(completion for completion in self._completions if completion.request is not request)
        return removed

    def next_completion(self) -> Completion | None:
        """The completion whose turn it is; None if it is the session's."""
        others = self._waiting or self._session
        self._session_is_next = bool(others and self._completions and not self._session_is_next)
        return self._completions.popleft() if self._completions and not self._session_is_next else None

    def complete(self, completion: Completion) -> None:
        """Continue a completion when it is its turn."""
        self._completions.append(completion)

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
        requests = list(dict.fromkeys(request.client_request for request, _ in self._running.values()))
        with suppress(Exception):  # the session has failed already
            if self._session:
                self._session.drop(list(self._running))
        self._running.clear()
        self._running_cost = 0
        self._end_session()
        for request in requests:
            self.drop(request)
        return requests

    def _group_of(self, request: ScheduledRequest) -> Hashable:
        """Requests of one group share a session; one that samples has its own, so that others do not affect it."""
        if self._engine.mixed_options:
            return None
        return (request.translator, request.config, request if request.config.sample else None)

    def _next_group(self) -> Hashable:
        """The group that has waited longest or, of small requests, usually that with the least work."""
        if self._choose_oldest():
            return next(iter(self._waiting))
        return min(self._waiting, key=lambda group: min(request.remaining for request in self._waiting[group]))

    def _next_request(self, requests: deque[ScheduledRequest]) -> ScheduledRequest:
        """The first request or, of small requests, usually the one with the least work."""
        return requests[0] if self._choose_oldest() else min(requests, key=lambda request: request.remaining)

    def _choose_oldest(self) -> bool:
        return not self._small or self._choices % _OLDEST_EVERY == _OLDEST_EVERY - 1

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


def _budget(engine: Engine) -> int:
    budget = engine.batch_tokens or _TOKEN_BUDGET
    return min(budget, _PLAIN_TOKEN_BUDGET) if engine.name == "plain" else budget


class Scheduler:
    """Accepts requests from any thread, and delivers outputs from its own."""

    def __init__(self, max_waiting: int, metrics: ServerMetrics, cache_bytes: float = math.inf) -> None:
        self._max_waiting, self._metrics = max_waiting, metrics
        self._changed = threading.Condition()
        self._queues: dict[tuple[Engine, int], EngineQueue] = {}
        """By engine and size of the requests."""
        self._generation = {
            small: GenerationQueue(1 if small else 1 + len(_SHARES), cache_bytes) for small in (True, False)
        }
        """Of language models, by whether the requests are small."""
        self._least_used = 0.0
        """Weighted seconds that the queue chosen last had used when it was chosen."""
        self._reserved = 0
        """Places in the queue reserved for requests that are being prepared."""
        self._next_key = 0
        self._closing = False
        self._step_started: float | None = None
        self._thread = threading.Thread(target=self._run, name="transduce-scheduler", daemon=True)
        metrics.waiting.set_function(lambda: self.waiting)
        metrics.running.set_function(lambda: self.running)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of requests in the queue, including those that are being prepared for it."""
        with self._changed:
            return self._reserved + sum(queue.waiting for queue in self._queues.values())

    @property
    def running(self) -> int:
        """Number of jobs on the device."""
        with self._changed:
            return sum(queue.running for queue in self._queues.values())

    @property
    def full(self) -> bool:
        """Whether the queue has no free place."""
        return self.waiting >= self._max_waiting

    @property
    def step_seconds(self) -> float:
        """How long the step that is running has taken so far; infinite if the thread has ended."""
        started = self._step_started
        if not self._thread.is_alive():
            return math.inf
        return 0.0 if started is None else monotonic() - started

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Reserve a place in the queue while a request is prepared and submitted; QueueFullError if there is none."""
        with self._changed:
            if self.full:
                raise QueueFullError
            self._reserved += 1
        try:
            yield
        finally:
            with self._changed:
                self._reserved -= 1

    def submit(self, request: ScheduledRequest) -> None:
        """Add a request to the queue, within `reserve`."""
        engine = request.translator.engine_for(request.config)
        with self._changed:
            assert not self._closing
            self._enqueue(request, engine, size_of(request, engine))
            self._changed.notify()

    def generate(self, job: GenerationJob) -> None:
        """Add a job of a language model to its queue; QueueFullError if too many wait."""
        with self._changed:
            if sum(queue.waiting for queue in self._generation.values()) >= self._max_waiting:
                raise QueueFullError
            queue = self._generation[job.small]
            self._start(queue)
            queue.enqueue(job)
            self._changed.notify()

    def stop_generating(self, job: GenerationJob) -> None:
        """Stop working on a job; has no effect if it is finished."""
        with self._changed:
            self._generation[job.small].remove(job)

    def _start(self, queue: EngineQueue | GenerationQueue) -> None:
        """Set the used time of a queue before its first job: idle time earns no priority."""
        if not queue.busy:
            queue.used_seconds = max(queue.used_seconds, self._least_used)

    def _enqueue(self, request: ScheduledRequest, engine: Engine, size: int) -> None:
        if not request.config.sample:  # sampling depends on the key, which must not depend on other requests
            request.first_key = self._next_key
            self._next_key += len(request.jobs)
        queue = self._queues.setdefault((engine, size), EngineQueue(engine, size))
        self._start(queue)
        queue.enqueue(request)

    def drop(self, request: ScheduledRequest) -> None:
        """Stop working on a request; has no effect if it is finished or unknown."""
        with self._changed:
            request.dropped = True
            for queue in self._queues.values():
                self._metrics.dropped.inc(queue.drop(request))

    def close(self, seconds: float | None = None) -> None:
        """Finish all submitted requests, then end the thread; give up after this time."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def _busy(self) -> list[EngineQueue | GenerationQueue]:
        queues: list[EngineQueue | GenerationQueue] = [*self._queues.values(), *self._generation.values()]
        return [queue for queue in queues if queue.busy]

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._busy())
                if not (busy := self._busy()):
                    return
                queue = min(busy, key=lambda queue: queue.used_seconds)
                self._least_used = queue.used_seconds
                if isinstance(queue, GenerationQueue):
                    work = partial(self._generate, queue, queue.next_job())
                elif completion := queue.next_completion():
                    work = partial(self._complete, queue, completion)
                else:
                    work = partial(self._step, queue, queue.next_step())
            self._step_started = monotonic()
            work()
            self._step_started = None

    def _generate(self, queue: GenerationQueue, job: GenerationJob) -> None:
        start = perf_counter()
        unfinished = job.advance()
        seconds = perf_counter() - start
        with self._changed:
            job.used_seconds += seconds
            queue.used_seconds += queue.weight * seconds
            if not unfinished:
                queue.remove(job)

    def _step(self, queue: EngineQueue, step: EngineStep) -> None:
        self._metrics.steps.inc()
        start = perf_counter()
        try:
            results = step.run()
        except Exception as error:
            _log.error("a search session failed: %s", error_location(error))
            with self._changed:
                failed = queue.fail()
            for request in failed:
                self._fail(request, error)
            return
        with self._changed:
            queue.used_seconds += queue.weight * (perf_counter() - start)
            for request, hypotheses in queue.finish(results).items():
                if request.completion is None:
                    for completion in request.completions(hypotheses):
                        queue.complete(completion)
                elif request.completion.add(hypotheses):
                    queue.complete(request.completion)

    def _complete(self, queue: EngineQueue, completion: Completion) -> None:
        """Take a step of a completion, and submit the searches that it needs or deliver its translations."""
        start = perf_counter()
        request = completion.request
        try:
            searches = completion.advance()
        except Exception as error:
            _log.error("outputs could not be completed: %s", error_location(error))
            self._fail(request, error)
            return
        with self._changed:
            queue.used_seconds += queue.weight * (perf_counter() - start)
            if request.dropped:
                return
            if searches:
                self._enqueue(searches, request.translator.repairing_engine(request.config), queue.size)
            elif completion.translations is None:
                queue.complete(completion)
        if (translations := completion.translations) is None:
            return
        self._metrics.sentences.inc(len(translations))
        self._metrics.source_tokens.inc(sum(len(request.jobs[index].tokens) for index, _ in translations))
        self._metrics.output_tokens.inc(sum(len(best[0].tokens) for _, best in translations if best))
        request.deliver(translations)

    def _fail(self, request: ScheduledRequest, error: Exception) -> None:
        self.drop(request)
        request.deliver(error)

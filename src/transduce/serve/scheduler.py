"""The scheduler: one thread that translates the sentences of many requests on one device.

Every engine has a queue for each size of requests (`engine_queue.py`), which adds sentences of waiting requests to its
running session. The queues share the thread's time rather than its steps, because one step of an engine may take as
long as a hundred of another's. A queue of larger requests has a smaller share. Large requests therefore delay a small
one much less than they would in one queue, and none waits forever.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from transduce.search.engine import Engine
from transduce.serve.engine_queue import EngineQueue, EngineStep, size_of
from transduce.serve.errors import error_location
from transduce.serve.metrics import Metrics
from transduce.serve.scheduled_request import JobHypotheses, ScheduledRequest

_log = logging.getLogger(__name__)


class QueueFullError(Exception):
    """The maximum number of requests is waiting."""


class Scheduler:
    """Accepts requests from any thread, and delivers outputs from its own."""

    def __init__(self, max_waiting: int, metrics: Metrics) -> None:
        self._max_waiting, self._metrics = max_waiting, metrics
        self._changed = threading.Condition()
        self._queues: dict[tuple[Engine, int], EngineQueue] = {}
        """By engine and size of the requests."""
        self._least_used = 0.0
        """Weighted seconds that the queue chosen last had used when it was chosen."""
        self._reserved = 0
        """Places in the queue reserved for requests that are being prepared."""
        self._next_key = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="transduce-scheduler", daemon=True)
        metrics.set_gauges(lambda: self.waiting, lambda: self.running)
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

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def submit(self, request: ScheduledRequest) -> None:
        """Add a request to the queue, within `reserve`."""
        engine = request.translator.engine_for(request.config)
        with self._changed:
            assert not self._closing
            if not request.config.sample:  # sampling depends on the key, which must not depend on other requests
                request.first_key = self._next_key
                self._next_key += len(request.jobs)
            size = size_of(request, engine)
            queue = self._queues.setdefault((engine, size), EngineQueue(engine, size))
            if not queue.busy:
                queue.used_seconds = max(queue.used_seconds, self._least_used)  # idle time earns no priority
            queue.enqueue(request)
            self._changed.notify()

    def drop(self, request: ScheduledRequest) -> None:
        """Stop working on a request; has no effect if it is finished or unknown."""
        with self._changed:
            for queue in self._queues.values():
                self._metrics.dropped.inc(queue.drop(request))

    def close(self) -> None:
        """Finish all submitted requests, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or any(queue.busy for queue in self._queues.values()))
                busy = [queue for queue in self._queues.values() if queue.busy]
                if not busy:
                    return
                queue = min(busy, key=lambda queue: queue.used_seconds)
                self._least_used = queue.used_seconds
                step = queue.next_step()
            self._metrics.steps.inc()
            self._step(queue, step)

    def _step(self, queue: EngineQueue, step: EngineStep) -> None:
        start = perf_counter()
        try:
            results = step.run()
        except Exception as error:
            _log.error("a search session failed: %s", error_location(error))
            with self._changed:
                failed = queue.fail()
            for request in failed:
                request.deliver(error)
            return
        with self._changed:
            queue.used_seconds += queue.weight * (perf_counter() - start)
            finished = queue.finish(results)
        for request, hypotheses in finished.items():
            self._deliver(request, hypotheses)

    def _deliver(self, request: ScheduledRequest, finished: JobHypotheses) -> None:
        try:
            translations = request.decode(finished)
        except Exception as error:
            _log.error("outputs could not be decoded: %s", error_location(error))
            request.deliver(error)
            return
        self._metrics.count_translations(
            sentences=len(translations),
            source_tokens=sum(len(request.jobs[index].tokens) for index, _ in translations),
            output_tokens=sum(len(best[0].tokens) for _, best in translations if best),
        )
        request.deliver(translations)

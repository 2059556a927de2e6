"""The queues of language models: small requests do not wait for large ones."""

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from transduce.language_model.generator import TextScore
from transduce.serve.generation_queue import GenerationJob, GenerationQueue
from transduce.serve.metrics import ServerMetrics
from transduce.serve.scheduler import Scheduler

TIMEOUT = 60


def test_a_small_request_is_fast_beside_many_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn takes one second of a clock that only turns advance."""
    clock = count()
    monkeypatch.setattr("transduce.serve.scheduler.perf_counter", lambda: float(next(clock)))
    scheduler, turns, stop, running, done = (
        Scheduler(100, ServerMetrics()),
        count(),
        threading.Event(),
        threading.Event(),
        [],
    )
    finished = threading.Event()

    def endless(number: int) -> Iterator[Any]:
        while not stop.is_set():
            if next(turns) > 50:
                running.set()
            yield number

    def five() -> Iterator[Any]:
        for number in range(5):
            done.append(next(turns))
            yield number

    for number in range(70):
        scheduler.generate(GenerationJob(endless(number), lambda _: None, 1000))
    assert running.wait(TIMEOUT)
    scheduler.generate(GenerationJob(five(), lambda result: finished.set() if result is None else None, 20))
    assert finished.wait(TIMEOUT)
    stop.set()
    scheduler.close()
    assert done[-1] - done[0] < 2 * 5


def test_a_step_without_a_result_is_not_delivered() -> None:
    scheduler, finished, delivered = Scheduler(10, ServerMetrics()), threading.Event(), list[Any]()

    scores: list[TextScore] = []

    def deliver(result: Any) -> None:
        delivered.append(result)
        if result is None:
            finished.set()

    scheduler.generate(GenerationJob(iter([None, scores, None]), deliver, 10))
    assert finished.wait(TIMEOUT)
    scheduler.close()
    assert delivered == [scores, None]


def test_large_requests_share_the_time() -> None:
    scheduler, order, finished = Scheduler(10, ServerMetrics()), [], threading.Event()
    remaining = {"a", "b"}

    def work(name: str) -> Iterator[Any]:
        for _ in range(3):
            order.append(name)
            yield name

    def deliver(name: str) -> Any:
        def take(result: Any) -> None:
            if result is None:
                remaining.discard(name)
                if not remaining:
                    finished.set()

        return take

    for name in ("a", "b"):
        scheduler.generate(GenerationJob(work(name), deliver(name), 10**6))
    assert finished.wait(TIMEOUT)
    scheduler.close()
    assert sorted(order) == ["a"] * 3 + ["b"] * 3


def test_jobs_run_together_if_their_caches_fit_in_memory() -> None:
    queue = GenerationQueue(1, cache_bytes=10)
    jobs = [GenerationJob(iter(()), lambda _: None, 1000, size) for size in (6, 4, 1, 20)]
    for job in jobs:
        queue.enqueue(job)
    queue.next_job()
    assert queue.waiting == 2
    queue.remove(jobs[0])
    queue.next_job()
    assert queue.waiting == 1
    queue.remove(jobs[1])
    queue.remove(jobs[2])
    assert queue.next_job() is jobs[3]  # it needs more than there is, and runs by itself

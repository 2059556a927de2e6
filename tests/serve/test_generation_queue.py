"""The queue of language models: small requests do not wait for large ones."""

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from transduce.serve.generation_queue import GenerationJob, GenerationQueue

TIMEOUT = 60


def test_a_small_request_is_fast_beside_many_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn takes one second of a clock that only turns advance."""
    clock = count()
    monkeypatch.setattr("transduce.serve.generation_queue.perf_counter", lambda: float(next(clock)))
    queue, turns, stop, running, done = GenerationQueue(100), count(), threading.Event(), threading.Event(), []
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
        queue.submit(GenerationJob(endless(number), lambda _: None, 1000))
    assert running.wait(TIMEOUT)
    queue.submit(GenerationJob(five(), lambda result: finished.set() if result is None else None, 20))
    assert finished.wait(TIMEOUT)
    stop.set()
    queue.close()
    assert done[-1] - done[0] < 2 * 5


def test_a_step_without_a_result_is_not_delivered() -> None:
    queue, finished, delivered = GenerationQueue(10), threading.Event(), list[Any]()

    def deliver(result: Any) -> None:
        delivered.append(result)
        if result is None:
            finished.set()

    queue.submit(GenerationJob(iter([None, "scores", None]), deliver, 10))
    assert finished.wait(TIMEOUT)
    queue.close()
    assert delivered == ["scores", None]


def test_large_requests_share_the_time() -> None:
    queue, order, finished = GenerationQueue(10), [], threading.Event()
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
        queue.submit(GenerationJob(work(name), deliver(name), 10**6))
    assert finished.wait(TIMEOUT)
    queue.close()
    assert sorted(order) == ["a"] * 3 + ["b"] * 3

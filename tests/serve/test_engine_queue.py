"""The queue of an engine: which jobs start next, and how many."""

from types import SimpleNamespace
from typing import Any

import pytest

from transduce.search.engine import Job
from transduce.search.options import SearchConfig
from transduce.serve.scheduler import EngineQueue, ScheduledRequest, size_of


@pytest.mark.parametrize(
    ("name", "batch_tokens", "budget"),
    [("plain", 4096, 512), ("plain", 64, 64), ("native", 8192, 8192), ("gpu", None, 131_072), ("gpu", 4000, 4000)],
)
def test_the_token_budget_is_the_batch_size_of_the_engine(name: str, batch_tokens: int | None, budget: int) -> None:
    """The budget of `plain` is smaller: its step is an entire batch."""
    engine: Any = SimpleNamespace(
        name=name, batch_tokens=batch_tokens, mixed_options=False, start_session=lambda _: None
    )
    queue = EngineQueue(engine)
    jobs = [Job([5, 6, 7], []) for _ in range(40_000)]
    queue.enqueue(ScheduledRequest(Any, SearchConfig(beam=1), jobs, (), lambda _: None))
    assert len(queue.next_step().added) == budget // 4


def started(queue: EngineQueue) -> list[tuple[int, float]]:
    """The jobs that the next step starts: number of tokens, and length penalty if it is the job's own."""
    added = queue.next_step().added
    return [(len(job.tokens), job.options.length_penalty if job.options else -1) for _, job in added]


def mixed_queue(size: int) -> EngineQueue:
    """A queue of an engine that mixes options; the budget of the smallest size is 32 tokens, of the largest 1024."""
    engine: Any = SimpleNamespace(
        name="native",
        batch_tokens=1024,
        several_sessions=True,
        mixed_options=True,
        start_session=lambda _: FakeSession(),
    )
    return EngineQueue(engine, size)


class FakeSession:
    """A session that is never finished."""

    busy = True


def enqueue(queue: EngineQueue, key: int, lengths: list[int], penalty: float = 0.6) -> ScheduledRequest:
    jobs: Any = [Job([5] * length, []) for length in lengths]
    request = ScheduledRequest(Any, SearchConfig(beam=1, length_penalty=penalty), jobs, (), lambda _: None, key)
    queue.enqueue(request)
    return request


def test_small_requests_with_least_work_are_next_and_every_fourth_job_is_of_the_oldest() -> None:
    queue = mixed_queue(0)
    for n, length in enumerate([7, 7, 5, 4, 3, 2, 1]):
        enqueue(queue, n, [length], penalty=n / 10)
    assert started(queue) == [(1, 0.6), (2, 0.5), (3, 0.4), (7, 0.0), (4, 0.3), (5, 0.2)]  # 28 of 32 tokens
    enqueue(queue, 7, [1], penalty=0.7)
    assert started(queue) == [(1, 0.7)]
    queue.finish([(0, []), (1, [])])
    assert started(queue) == [(7, 0.1)]


def test_the_remaining_work_of_a_request_counts() -> None:
    queue = mixed_queue(0)
    enqueue(queue, 0, [2, 2, 2], penalty=0.1)
    enqueue(queue, 10, [4, 1], penalty=0.2)
    assert started(queue) == [(4, 0.2), (1, 0.2), (2, 0.1), (2, 0.1), (2, 0.1)]


def test_of_the_largest_requests_one_job_of_each_starts_in_turn_whatever_their_options() -> None:
    queue = mixed_queue(3)
    for n in range(3):
        enqueue(queue, 10 * n, [200 + n, 3 + n], penalty=n / 10)
    assert started(queue) == [(200, 0.0), (201, 0.1), (202, 0.2), (3, 0.0), (4, 0.1), (5, 0.2)]


@pytest.mark.parametrize(
    ("tokens", "beam", "size"), [(15, 4, 0), (16, 4, 1), (15, 16, 1), (63, 4, 1), (64, 4, 2), (255, 4, 2), (256, 4, 3)]
)
def test_the_size_of_a_request_depends_on_its_tokens_and_its_beam(tokens: int, beam: int, size: int) -> None:
    engine: Any = SimpleNamespace(name="native", batch_tokens=8192, several_sessions=True)
    jobs: Any = [Job([5] * tokens, [])]
    request = ScheduledRequest(Any, SearchConfig(beam=beam), jobs, (), lambda _: None)
    assert size_of(request, engine) == size
    engine.several_sessions = False
    assert size_of(request, engine) == 3


def test_forced_lengths_count() -> None:
    config = SearchConfig(beam=2, min_length=100, max_extra=30)
    request = ScheduledRequest(Any, config, [], (), lambda _: None)
    assert request.cost(Job([5] * 9, [])) == 40 * 2
    assert request.cost(Job([5] * 9, [6] * 60)) == 61 * 2

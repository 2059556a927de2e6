"""KV caches are made from memory that earlier jobs used, whatever is in it."""

from typing import Any

import numpy as np
import pytest
from engines import native_engine
from helpers import small_model

from transduce.fast.native import weights
from transduce.fast.native.weights import SpareMemory
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig


def test_memory_that_was_given_back_is_used_again() -> None:
    memory = SpareMemory()
    first, other = memory.take(100), memory.take(100)
    assert first is not other
    assert first.size == other.size == 128 * 4
    memory.give_back(first)
    assert memory.take(200) is not first
    assert memory.take(65) is first
    assert memory.take(100) is not first


def test_no_more_is_kept_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_MOST_BYTES", 256 * 4)
    memory = SpareMemory()
    taken = [memory.take(128) for _ in range(3)]
    for block in taken:
        memory.give_back(block)
    again = [memory.take(128) for _ in range(3)]
    assert sum(any(block is old for old in taken) for block in again) == 2


@pytest.mark.parametrize("beam", [1, 3])
def test_outputs_do_not_depend_on_what_earlier_jobs_left(beam: int) -> None:
    engine: Any = native_engine(small_model())
    jobs = [Job([5, 6, 7], []), Job([9, 8], []), Job([4], [])]
    search = SearchConfig(beam=beam)
    expected = search_all(engine, jobs, search)
    spare = [block for blocks in engine.memory._spare.values() for block in blocks]
    assert len(spare) == 2 * len(jobs)
    for block in spare:
        np.frombuffer(block.content, np.float32).fill(np.nan)
    assert search_all(engine, jobs, search) == expected

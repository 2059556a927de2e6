"""The native engine's thread pool: any number of threads, concurrent callers, and forks."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from transduce.fast.native.engine import NativeEngine
from transduce.fast.native.library import load_library
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig

JOBS = [Job(list(range(4, 5 + n)), []) for n in range(12)]


def engine(threads: int) -> NativeEngine:
    library = load_library()
    if library is None:
        pytest.skip("no C compiler")
    torch.manual_seed(1)
    model = EncoderDecoder(
        EncoderDecoderConfig(encoder_layers=1, decoder_layers=1, d_model=32, d_ff=40, num_heads=2), 100
    )
    return NativeEngine(model.eval(), library, threads)


def outputs(engine: NativeEngine) -> list[list[int]]:
    """The tokens of the best hypotheses; scores are sums, whose order depends on the number of threads."""
    return [best[0].tokens for best in search_all(engine, JOBS, SearchConfig(beam=3, max_extra=10))]


def test_the_number_of_threads_does_not_change_the_output() -> None:
    alone = outputs(engine(1))
    assert outputs(engine(2)) == alone
    assert outputs(engine(5)) == alone
    assert outputs(engine(3)) == alone  # fewer than the pool has


def test_scores_do_not_depend_on_how_many_threads_a_busy_machine_lets_work() -> None:
    crowded = engine(6)  # more threads than cores, so that fewer of them run for a while
    config = SearchConfig(beam=3, max_extra=10)
    runs = [search_all(crowded, JOBS, config) for _ in range(8)]
    assert runs == runs[:1] * 8


def test_concurrent_callers_take_turns() -> None:
    alone = outputs(engine(1))
    engines = [engine(threads) for threads in [1, 2, 3, 2] * 3]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(outputs, engines)) == [alone] * 12


def test_a_forked_process_starts_its_own_threads() -> None:
    shared = engine(2)
    expected = outputs(shared)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends the process if it waits for threads of its parent
        os._exit(0 if outputs(shared) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

"""The native engine stays within its memory for models and texts of any size."""

import shutil
import subprocess
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from engines import native_engine
from helpers import small_model

from transduce.errors import ConfigError
from transduce.fast.native import library as native_library
from transduce.fast.native import weights
from transduce.models.weights_file import RawTensor
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig


def test_no_array_on_the_stack_has_a_variable_length() -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    command = [compiler, "-Wvla", "-Werror", "-fsyntax-only", native_library.DECODER]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("max_positions", [1, 2, 3])
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("cell", ["attention", "ssru"])
def test_texts_beyond_the_learned_positions_are_refused(max_positions: int, beam: int, cell: str) -> None:
    engine = native_engine(small_model(positions="learned", max_positions=max_positions, decoder_cell=cell))
    search = SearchConfig(beam=beam)
    longest = max_positions - 1  # one position is for the end marker
    ((best, *_),) = search_all(engine, [Job([5] * longest, [])], search)
    assert len(best.tokens) <= longest
    for job in (Job([5] * max_positions, []), Job([5] * 400, []), Job([], [6] * max_positions)):
        with pytest.raises(ConfigError, match=r"exceeds the \d learned positions"):
            search_all(engine, [job], search)


@pytest.mark.parametrize("shape", [(1, weights.MAX_SIZE + 1), (weights.MAX_SIZE + 1, 1)])
def test_layers_that_need_indices_of_more_than_32_bits_are_refused(shape: tuple[int, int]) -> None:
    engine: Any = native_engine(small_model())
    with pytest.raises(ConfigError, match="16,777,217 inputs or outputs of a layer are more than the 16,777,216"):
        engine.weights.linear(RawTensor("F32", shape, memoryview(b"")), None)


def test_texts_that_need_indices_of_more_than_32_bits_are_refused() -> None:
    unchecked = SearchConfig()
    object.__setattr__(unchecked, "max_extra", 10**9)
    with pytest.raises(ConfigError, match="1,000,000,002 tokens of a text are more than the 16,777,216"):
        search_all(native_engine(small_model()), [Job([5], [])], unchecked)


def test_a_table_of_positions_stays_while_another_thread_may_read_it() -> None:
    engine: Any = native_engine(small_model(max_positions=4))
    table = weakref.ref(engine.weights._kept[-1])
    address = engine.weights.model.target.positions
    search_all(engine, [Job([5] * 30, [])], SearchConfig(beam=1, max_extra=0))
    assert engine.weights.model.target.positions != address  # there is a larger table now
    assert table() is not None
    assert table().address == address


@pytest.mark.parametrize("cell", ["attention", "ssru"])
def test_texts_of_different_lengths_in_several_threads_share_one_engine(cell: str) -> None:
    jobs = [Job([5 + n % 9] * n, []) for n in range(1, 60, 4)]
    search = SearchConfig(beam=2, max_extra=2)
    own = native_engine(small_model(max_positions=64, decoder_cell=cell), threads=1)
    expected = [search_all(own, [job], search) for job in jobs]
    for _ in range(10):
        shared = native_engine(small_model(max_positions=1, decoder_cell=cell), threads=1)
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda job, engine=shared: search_all(engine, [job], search), jobs)) == expected


def test_the_memory_of_an_ssru_is_that_of_one_vector_for_each_hypothesis() -> None:
    """Whatever the length of the output; the buffers hold its input and its gate, wider here than anything else."""
    model = small_model(decoder_cell="ssru", d_model=36, num_heads=1, d_k=1, d_v=1, d_ff=1)
    session: Any = native_engine(model).start_session(SearchConfig(beam=3, max_extra=200))
    session.add([(0, Job([5], []))])
    session.step()
    job = session._active[0]
    assert job.caches["self_kv"].size == 0
    assert len(job.arrays["states"]) == 2 * 3 * 36 * 2  # the last two positions, hypotheses, width, layers
    assert session._buffers["wide"].size >= session._reserved[0] * 2 * 36 * 4

"""The fast engines beyond `test_engine_conformance.py`: batches that change as they run, limits of memory, errors."""

import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from engines import DEVICE, FAST, assert_same, gpu_engine, plain, raw_tensor

from transduce.errors import ConfigError
from transduce.fast import kernels
from transduce.fast.native.weights import Memory
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.weights_file import Block
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig
from transduce.search.plain_engine import PlainEngine

if kernels.HAS_TRITON:
    from transduce.fast.gpu import engine as gpu
    from transduce.fast.gpu.beam import SlotBeam

needs_triton = pytest.mark.skipif(not kernels.HAS_TRITON, reason="no Triton")
V = 300
SIZES: dict[str, Any] = {
    "encoder_layers": 1, "decoder_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 1, "dropout": 0.0,
}  # fmt: skip
LEARNED = EncoderDecoderConfig(**SIZES, positions="learned", max_positions=18)


def make(config: EncoderDecoderConfig, vocab_size: int = V) -> EncoderDecoder:
    torch.manual_seed(2)  # with 0, one activation lies so close to x.5 that float32 may round it either way
    model = EncoderDecoder(config, vocab_size).eval()
    for parameter in model.parameters():  # louder than they start, so that outputs differ
        parameter.data *= 2.0
    return model


def some_jobs(number: int, longest: int = 8, vocab_size: int = V) -> list[Job]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, longest, (number,), generator=generator).tolist()
    return [Job(torch.randint(4, vocab_size, (length,), generator=generator).tolist(), []) for length in lengths]


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("tagged", [False, True])
def test_a_text_as_long_as_learnt_positions_reach_is_translated(name: str, tagged: bool) -> None:
    model, search = make(replace(LEARNED, decoder_tag=tagged)), SearchConfig(beam=2, max_length=2)
    assert model.longest is not None
    jobs = [Job(list(range(10, 10 + model.longest + tagged)), [])]
    assert_same(search_all(FAST[name](model), jobs, search), search_all(plain(name, model), jobs, search))


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("max_positions", [1, 2])
def test_texts_beyond_the_learned_positions_are_refused(name: str, max_positions: int) -> None:
    """With one position there is room for the end marker only: `longest` is 0, which is not the same as no limit."""
    config = EncoderDecoderConfig(**SIZES, positions="learned", max_positions=max_positions)
    model, search = make(config), SearchConfig(beam=2)
    assert model.longest == max_positions - 1
    engine, fitting = FAST[name](model), [Job([10] * model.longest, [])]
    assert_same(search_all(engine, fitting, search), search_all(plain(name, model), fitting, search))
    for job in (Job([10] * max_positions, []), Job([], [10] * max_positions)):
        with pytest.raises(ConfigError, match=f"exceeds the {max_positions} learned positions"):
            search_all(engine, [job], search)


@pytest.mark.parametrize("name", FAST)
def test_sentences_join_a_running_batch_and_come_out_as_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "gpu":
        pytest.importorskip("triton")
    monkeypatch.setattr(f"transduce.fast.{name}.engine.MOST_ROWS", 4)  # two slots for many sentences
    jobs = some_jobs(5, longest=8 if name == "native" or DEVICE == "cuda" else 4)  # Triton's interpreter is slow
    model, search = make(EncoderDecoderConfig(**SIZES)), SearchConfig(beam=2, max_extra=2)
    engine = FAST[name](model)
    together = search_all(engine, jobs, search)
    assert_same(together, [search_all(engine, [job], search)[0] for job in jobs])
    assert_same(together, search_all(plain(name, model), jobs, search))


def test_jobs_with_different_options_share_a_session_of_the_native_engine() -> None:
    model, jobs = make(EncoderDecoderConfig(**SIZES)), some_jobs(6)
    beams, penalties = [1, 2, 16, 4, 3, 1], [0.6, -1.0, 2.0, 0.0, 1.0, 0.3]
    options = [
        SearchConfig(beam=beam, length_penalty=alpha, nbest=max(1, beam // 2), max_extra=n, min_length=n % 3)
        for n, (beam, alpha) in enumerate(zip(beams, penalties, strict=True))
    ]
    engine = FAST["native"](model)
    mixed = [replace(job, options=config) for job, config in zip(jobs, options, strict=True)]
    together = search_all(engine, mixed, SearchConfig())
    for found, job, config in zip(together, jobs, options, strict=True):
        assert_same([found], search_all(engine, [job], config))
        assert_same([found], search_all(plain("native", model), [job], config))


@pytest.mark.parametrize("name", FAST)
def test_a_dropped_job_is_never_finished_and_harms_no_other(name: str) -> None:
    model, jobs, search = make(EncoderDecoderConfig(**SIZES)), some_jobs(3), SearchConfig(beam=2, max_extra=3)
    session = FAST[name](model).start_session(search)
    session.add(list(enumerate(jobs)))
    done = dict(session.step())
    session.drop([1, 77])
    while session.busy:
        done |= dict(session.step())
    assert sorted(done) == [0, 2]
    expected = search_all(plain(name, model), jobs, search)
    assert_same([done[0], done[2]], [expected[0], expected[2]])


def search_of_no_numbers(model: EncoderDecoder, jobs: list[Job], search: SearchConfig) -> dict[int, list[Hypothesis]]:
    """What the gpu engine finds in as many steps as it may take."""
    session = gpu_engine(model).start_session(search)
    session.add(list(enumerate(jobs)))
    done: dict[int, list[Hypothesis]] = {}
    for _ in range(50):
        done |= dict(session.step() if session.busy else [])
    assert not session.busy
    return done


@needs_triton
@pytest.mark.parametrize("beam", [1, 3])
def test_scores_that_are_no_numbers_end_the_gpus_search_without_an_output(
    beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By way of the length penalty: Triton's interpreter cannot rank words none of which has a number."""

    def set_search(slots: gpu.SlotBatch, config: SearchConfig) -> None:
        slots.beam.alpha_1.fill_(torch.nan)
        slots.beam.nbest_1.fill_(config.nbest)

    monkeypatch.setattr(gpu.SlotBatch, "set_search", set_search)
    search = SearchConfig(beam=beam, max_extra=2)
    assert search_of_no_numbers(make(EncoderDecoderConfig(**SIZES)), some_jobs(2), search) == {0: [], 1: []}


@needs_triton
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: Triton's interpreter cannot rank what is no number")
@pytest.mark.parametrize("beam", [1, 2, 3, 4])
def test_weights_that_are_no_numbers_end_the_gpus_search_without_an_output(beam: int) -> None:
    model, jobs = make(EncoderDecoderConfig(**SIZES)), some_jobs(3)
    model.embedding.weight_VD.data[:] = torch.nan
    assert search_of_no_numbers(model, jobs, SearchConfig(beam=beam, max_extra=2)) == {0: [], 1: [], 2: []}


@needs_triton
def test_where_memory_is_short_the_gpu_has_fewer_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    attempts: list[weakref.ref[gpu.SlotBatch]] = []

    class Small(gpu.SlotBatch):
        def __init__(self, model: EncoderDecoder, slots: int, *sizes: int) -> None:
            made.append(slots)
            if slots > 1:
                attempts.append(weakref.ref(self))
                raise torch.OutOfMemoryError("injected")
            super().__init__(model, slots, *sizes)

    def give_back() -> None:
        assert attempts[-1]() is None, "memory of the attempt that failed is not free"

    monkeypatch.setattr(gpu, "SlotBatch", Small)
    monkeypatch.setattr(torch.cuda, "empty_cache", give_back)
    model, jobs, search = make(EncoderDecoderConfig(**SIZES)), some_jobs(3), SearchConfig(beam=1, max_extra=1)
    assert_same(search_all(gpu_engine(model), jobs, search), search_all(PlainEngine(model), jobs, search))
    assert made[:3] == [4, 2, 1]
    assert set(made[3:]) <= {1}  # more are not tried again


def slot_batches_made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Slots and beam of every slot batch that is made from now on."""
    made: list[tuple[int, int]] = []

    class Noted(gpu.SlotBatch):
        def __init__(self, model: EncoderDecoder, slots: int, beam: int, *capacities: int) -> None:
            made.append((slots, beam))
            super().__init__(model, slots, beam, *capacities)

    monkeypatch.setattr(gpu, "SlotBatch", Noted)
    return made


@needs_triton
def test_slots_stay_within_the_tokens_worked_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, engine = (
        slot_batches_made(monkeypatch),
        gpu.GpuEngine(make(EncoderDecoderConfig(**SIZES)).to(DEVICE), batch_tokens=60),
    )
    for jobs, beam in [(1, 1), (5, 1), (100, 1), (100, 2), (100, 16)]:
        engine.slot_batch(jobs, SearchConfig(beam=beam), source_capacity=10, positions=8)
    assert made == [(1, 1), (4, 1), (2, 2), (1, 16)]  # powers of two; with 5 jobs and 100 the same


@needs_triton
def test_slot_batches_that_were_not_used_for_long_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_MAX_SLOT_BATCHES", 2)
    made, engine = slot_batches_made(monkeypatch), gpu.GpuEngine(make(EncoderDecoderConfig(**SIZES)).to(DEVICE))
    for beam in (1, 2, 1, 3, 1, 2):
        engine.slot_batch(1, SearchConfig(beam=beam), source_capacity=8, positions=8)
    assert [beam for _, beam in made] == [1, 2, 3, 2]


@needs_triton
def test_a_slot_batch_too_small_is_freed_before_a_larger_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = gpu.GpuEngine(make(EncoderDecoderConfig(**SIZES)).to(DEVICE), torch.float32)
    session = engine.start_session(SearchConfig(beam=1, max_extra=1))
    held: list[gpu.SlotBatch | None] = []
    slot_batch = engine.slot_batch
    monkeypatch.setattr(engine, "slot_batch", lambda *sizes: held.append(session._slots) or slot_batch(*sizes))  # type: ignore[func-returns-value]
    for length in (3, 20):
        session.add([(length, Job([5] * length, []))])
        while session.busy:
            session.step()
    assert held == [None, None]


@needs_triton
def test_a_recorded_step_keeps_the_positions_that_it_reads() -> None:
    engine = gpu.GpuEngine(make(EncoderDecoderConfig(**SIZES, max_positions=8)).to(DEVICE), torch.float32)
    search = SearchConfig(beam=1)
    kept = engine.slot_batch(1, search, source_capacity=4, positions=64)
    assert engine.model.embedding.positions is not None
    table = weakref.ref(engine.model.embedding.positions.table_TD)
    engine.slot_batch(2, search, source_capacity=4, positions=128)
    assert table() is not engine.model.embedding.positions.table_TD
    assert table() is not None, "the GPU would read memory that is used for something else"
    assert engine.slot_batch(1, search, source_capacity=4, positions=64) is kept


COMPILE = """
import types
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from transduce.fast.kernels import few_rows

torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(multi_processor_count=58)
kernel, sizes = few_rows._few_rows_linear, few_rows._sizes
for R, D, F, in_parts in [(1, 512, 1536, False), (4, 4096, 1024, True), (16, 768, 3072, False), (64, 3072, 768, True)]:
    x = types.SimpleNamespace(shape=(R, D), is_cuda=True, device=None)
    rows, columns, block, stages, parts = sizes(x, F, in_parts)
    part = triton.cdiv(D, parts * block) * block
    constants = dict(BIAS=True, KIND="none", D=D, PART=part, ROWS=rows, COLUMNS=columns, BLOCK=block)
    constants |= dict(LATE=True, EARLY=False)
    pointers, names = ("x_RD", "weight_FD", "bias_F", "y_PRF"), kernel.arg_names
    types_of = {name: "*fp16" if name in pointers else "constexpr" if name in constants else "i32" for name in names}
    source = ASTSource(
        kernel, types_of, constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in (*pointers, "F")},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 86, 32), options={"num_warps": 4, "num_stages": stages})
    print(compiled.metadata.shared)
"""


@needs_triton
def test_products_for_few_rows_fit_into_the_shared_memory_of_every_gpu_since_ampere() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    printed = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=True
    )
    needed = [int(line) for line in printed.stdout.split()]
    assert len(needed) == 4
    assert max(needed) <= 99 * 1024


@needs_triton
def test_job_ids_repeat_before_they_outgrow_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (gpu._JOB_IDS[0], gpu._JOB_IDS[-1]) == (1, 2**31 - 1)
    monkeypatch.setattr(gpu, "_JOB_IDS", range(2**31 - 2, 2**31))
    model, jobs, search = make(EncoderDecoderConfig(**SIZES)), some_jobs(3), SearchConfig(beam=1, max_extra=1)
    engine = gpu_engine(model)
    found = [search_all(engine, [job], search)[0] for job in jobs]
    assert_same(found, search_all(PlainEngine(model), jobs, search))


@needs_triton
def test_the_gpu_of_the_model_is_the_current_one_in_whatever_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, depth = gpu.GpuEngine(make(EncoderDecoderConfig(**SIZES)).to(DEVICE), torch.float32), [0]

    @contextmanager
    def device_of(tensor: torch.Tensor) -> Iterator[None]:
        assert tensor is engine.model.embedding.weight_VD
        depth[0] += 1
        yield
        depth[0] -= 1

    def watch(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def watched(*given: Any) -> Any:
            assert depth[0] == 1, name
            return function(*given)

        monkeypatch.setattr(owner, name, watched)

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    for name in ("__init__", "enter", "step", "read"):
        watch(gpu.SlotBatch, name)
    watch(SlotBeam, "leave")
    session = engine.start_session(SearchConfig(beam=1, max_extra=1))
    session.add(list(enumerate(some_jobs(2))))
    session.step()
    session.drop([0])
    while session.busy:
        session.step()


def test_weights_are_there_until_they_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[weakref.ref[Any]] = []

    class Noted(Block):
        def __init__(self, size: int) -> None:
            super().__init__(size)
            blocks.append(weakref.ref(self))

    def pack_weights(*_: Any) -> None:
        assert all(block() is not None for block in blocks)

    monkeypatch.setattr("transduce.fast.native.weights.Block", Noted)
    library: Any = SimpleNamespace(pack_weights=pack_weights, read_floats=lambda *_: 1)
    memory = Memory(library)
    assert memory.linear(raw_tensor(np.ones((5, 3), np.float32)), None).width_out == 5
    assert [block() is None for block in blocks] == [False] * 4 + [True] * 2  # what the layer points to is still there


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize(
    ("options", "takes"),
    [
        ({"beam": 1}, True),
        ({"beam": 16}, True),
        ({"beam": 17}, False),
        ({"sample": True}, False),
        ({"no_repeat": 3}, False),
    ],
)
def test_what_the_fast_engines_take(name: str, options: dict[str, Any], takes: bool) -> None:
    assert (
        FAST[name](make(EncoderDecoderConfig(**SIZES))).supports(
            make(EncoderDecoderConfig(**SIZES)), SearchConfig(**options)
        )
        is None
    ) == takes

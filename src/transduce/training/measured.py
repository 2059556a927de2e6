"""Settings that are measured when a run starts: the largest batch that fits, and the faster precision on a CPU.

A CPU with AMX multiplies bfloat16 matrices several times as fast as float32; one without instructions for bfloat16
takes hundreds of times as long.
"""

import copy
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from transduce.data.batch import Batch, to_device
from transduce.data.packing import fill
from transduce.data.plan import SHORTEST_MEAN
from transduce.errors import ConfigError, RunError
from transduce.files.readers import READERS
from transduce.models.model import Model
from transduce.training.learner import Compute, Learner, make_optimizer, make_precision
from transduce.training.recipe import Recipe
from transduce.training.steps import release_memory
from transduce.training.task import Task
from transduce.training.train_config import TrainConfig

_SMALLEST, _ROUND = 1024, 256
_MARGIN = 0.9
"""Share of the memory to use: real batches differ a little from trial batches."""
TRIAL_TOKENS = 1024
"""Approximate number of tokens of the batch that is computed in both precisions."""
_PRODUCTS = {96: 20.0, 256: 3.0}
"""Rows and columns of products that are tried in both precisions, and the relative time in bfloat16 above which no step
is tried. Without instructions for bfloat16, Arm processors take hundreds of times as long, x86 processors about five
times; with them, only a small product takes longer, a few times, because of the calls."""
_WORTHWHILE = 1.2
"""Minimum speed-up for which bfloat16 is used: a smaller one is within the noise of the measurement."""
_WARM_UP, _ROUNDS, _ENOUGH = 1.0, 3, 2.0
"""Seconds that the first step in bfloat16 may take longer than in float32, and limits of the rounds after it."""


def largest_batch(recipe: Recipe, task: Task, model: Model, corpus_tokens: int) -> int:
    """Tokens per stream of the largest batch whose step fits in memory, found by trial steps."""
    device = model.device
    if device.type != "cuda":
        raise ConfigError('train.batch_tokens = "auto" measures the memory of a GPU; give a number to train on a CPU')
    release_memory()
    used = torch.cuda.memory_allocated(device)
    limit = (torch.cuda.mem_get_info(device)[0] + used) * _MARGIN
    smallest = max(_SMALLEST, recipe.data.max_length + 1)
    most = max(smallest, corpus_tokens // 16)  # a batch as large as the corpus leaves nothing to shuffle
    measured: list[tuple[int, float]] = []
    tokens = smallest
    while tokens <= most and (peak := _peak_memory(recipe, task, model, tokens)) is not None:
        measured.append((tokens, peak))
        if peak > limit / 4 and len(measured) > 1:  # large enough to extrapolate
            break
        tokens *= 2
    if not measured:
        raise RunError(f"a batch of {smallest:,} tokens does not fit in the GPU's memory; choose a smaller model")
    safe, peak = measured[-1]
    if len(measured) > 1:
        (before, peak_before) = measured[-2]
        per_token = (peak - peak_before) / (safe - before)
        result = min(most, int(safe + (limit - peak) / per_token))
        while (result := result // _ROUND * _ROUND) > safe:
            if _peak_memory(recipe, task, model, result) is not None:
                return result
            result = int(result * 0.9)
    return safe


def _peak_memory(recipe: Recipe, task: Task, model: Model, tokens: int) -> float | None:
    """Peak memory of a step with this many tokens; None if it does not fit."""
    torch.cuda.reset_peak_memory_stats(model.device)
    peak: float | None = None
    with suppress(torch.OutOfMemoryError):
        trained = copy.deepcopy(model)
        learner = Learner(trained, make_optimizer(trained, recipe.train), task, recipe.train)
        batch = trial_batch(recipe, task, model, tokens, recipe.data.max_length)
        learner.compute(batch)
        learner.update(1, 0.0, batch.count)
        peak = torch.cuda.max_memory_allocated(model.device)
    release_memory()
    return peak


def trial_batch(recipe: Recipe, task: Task, model: Model, tokens: int, sentence: int) -> Batch:
    """A batch of random tokens in sentences with this many tokens."""
    length = sentence + task.markers
    random = np.random.default_rng(0)
    smallest = min(model.vocab_size, getattr(model.config, "source_vocab_size", None) or model.vocab_size)
    sentences = [random.integers(4, smallest, sentence + 1 - task.markers) for _ in range(max(1, tokens // length))]
    packed = task.pack([(sentence,) * len(READERS[task.reader].streams) for sentence in sentences], seed=0)
    if not model.captures or model.device.type != "cuda":
        return to_device(packed, model.device)
    filled = fill(packed, tokens, tokens // SHORTEST_MEAN, length, max_labels=task.max_labels)
    return to_device(filled, model.device, length)


class _TooSlowError(Exception):
    """A forward pass exceeded its limit."""


@dataclass(frozen=True)
class Times:
    """Seconds of the same computation in both precisions."""

    float32: float
    bfloat16: float

    @property
    def slowdown(self) -> float:
        """How many times as long bfloat16 takes."""
        return self.bfloat16 / self.float32

    def __str__(self) -> str:
        return f"{_milliseconds(self.float32)} in float32 and {_milliseconds(self.bfloat16)} in bfloat16"


def product_times(size: int) -> Times:
    """The time of a matrix product with this number of rows and columns on this CPU, after a first one."""
    seconds: dict[torch.dtype, float] = {}
    with _without_warnings():
        for dtype, times in ((torch.float32, 5), (torch.bfloat16, 2)):
            x = torch.ones(size, size, dtype=dtype)
            for _ in range(times):
                start = time.perf_counter()
                torch.mm(x, x)
                seconds[dtype] = min(time.perf_counter() - start, seconds.get(dtype, math.inf))
    return Times(seconds[torch.float32], seconds[torch.bfloat16])


def hopeless_product() -> tuple[int, Times] | None:
    """The size and times of a product that takes so long in bfloat16 that no step should be tried, if there is one."""
    for size, limit in _PRODUCTS.items():
        if (times := product_times(size)).slowdown > limit:
            return size, times
    return None


def faster_precision(model: Model, task: Task, config: TrainConfig, batch: Batch) -> tuple[str, str]:
    """The precision in which training is faster on this CPU, and the measurements that tell so.

    Weights, random numbers and everything else that training depends on stay as they are.
    """
    if product := hopeless_product():
        size, times = product
        return "float32", f"a product of {size} x {size} x {size} takes {times}"
    with _without_warnings():
        step = _step_times(model, task, config, batch)
    chosen = "bfloat16" if step.slowdown * _WORTHWHILE <= 1 else "float32"
    return chosen, f"a trial step takes {step}"


@torch.random.fork_rng(devices=[])
def _step_times(model: Model, task: Task, config: TrainConfig, batch: Batch) -> Times:
    """The time of the gradients of a batch; a forward pass in bfloat16 is aborted if it takes longer than float32."""
    wide, half = (
        Compute(precision, task, config.label_smoothing, config.r_drop)
        for precision in (make_precision(model, half=half) for half in (False, True))
    )
    begin = time.perf_counter()
    _seconds(half, batch, model, limit=_seconds(wide, batch, model) + _WARM_UP)
    float32 = bfloat16 = math.inf
    for _ in range(_ROUNDS):
        float32 = min(float32, _seconds(wide, batch, model))
        bfloat16 = min(bfloat16, _seconds(half, batch, model, limit=float32))
        if time.perf_counter() - begin > _ENOUGH:
            break
    return Times(float32, bfloat16)


def _seconds(compute: Compute, batch: Batch, model: Model, limit: float = math.inf) -> float:
    """The time of the gradients of a batch, and of what a precision adds to the update of the weights."""
    precision = compute.precision
    precision.worker.train()
    start = time.perf_counter()
    with suppress(_TooSlowError):
        with _aborted_after(limit):
            compute(batch)
        with torch.no_grad():
            precision.collect()
            precision.refresh()
    seconds = time.perf_counter() - start
    for _, weight in (*model.named_parameters(), *model.trained.named_parameters()):
        weight.grad = None
    return seconds


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide torch's warning, which has a stack trace, that the CPU has no instructions for bfloat16."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


@contextmanager
def _aborted_after(limit: float) -> Iterator[None]:
    deadline = time.perf_counter() + limit

    def check(*_: object) -> None:
        if time.perf_counter() > deadline:
            raise _TooSlowError

    with register_module_forward_pre_hook(check):
        yield

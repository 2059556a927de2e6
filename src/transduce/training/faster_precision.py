"""The faster precision on a CPU, for `train.precision = "auto"`: it is measured, because CPUs differ by factors.

A CPU with AMX multiplies bfloat16 matrices several times as fast as float32; one without instructions for bfloat16
takes hundreds of times as long.
"""

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from transduce.data.batch import Batch
from transduce.models.model import Model
from transduce.training.compute import Compute
from transduce.training.precision import Bfloat16Copy, Float32
from transduce.training.task import Task
from transduce.training.train_config import TrainConfig

TRIAL_TOKENS = 1024
"""Approximate number of tokens of the batch that is computed in both precisions."""
_PRODUCT = 96
"""Rows and columns of a product that takes milliseconds even on a CPU without instructions for bfloat16."""
_HOPELESS = 20
"""Relative time of such a product in bfloat16 above which no step is tried. Without such instructions it takes hundreds
of times as long; with them, a small product takes a few times as long at most, because of the calls."""
_WORTHWHILE = 1.2
"""Minimum speed-up for which bfloat16 is used: a smaller one is within the noise of the measurement."""
_WARM_UP, _ROUNDS, _ENOUGH = 1.0, 3, 2.0
"""Seconds that the first step in bfloat16 may take longer than in float32, and limits of the rounds after it."""


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


def product_times() -> Times:
    """The time of a small matrix product on this CPU, after a first one."""
    seconds: dict[torch.dtype, float] = {}
    with _without_warnings():
        for dtype, times in ((torch.float32, 5), (torch.bfloat16, 2)):
            x = torch.ones(_PRODUCT, _PRODUCT, dtype=dtype)
            for _ in range(times):
                start = time.perf_counter()
                torch.mm(x, x)
                seconds[dtype] = min(time.perf_counter() - start, seconds.get(dtype, math.inf))
    return Times(seconds[torch.float32], seconds[torch.bfloat16])


def bfloat16_is_hopeless(product: Times) -> bool:
    """Whether this CPU emulates bfloat16, so that a step would take too long to be tried."""
    return product.slowdown > _HOPELESS


def faster_precision(model: Model, task: Task, config: TrainConfig, batch: Batch) -> tuple[str, str]:
    """The precision in which training is faster on this CPU, and the measurements that tell so.

    Weights, random numbers and everything else that training depends on stay as they are.
    """
    product = product_times()
    if bfloat16_is_hopeless(product):
        return "float32", f"a product of {_PRODUCT} x {_PRODUCT} x {_PRODUCT} takes {product}"
    with _without_warnings():
        step = _step_times(model, task, config, batch)
    chosen = "bfloat16" if step.slowdown * _WORTHWHILE <= 1 else "float32"
    return chosen, f"a trial step takes {step}"


@torch.random.fork_rng(devices=[])
def _step_times(model: Model, task: Task, config: TrainConfig, batch: Batch) -> Times:
    """The time of the gradients of a batch; a forward pass in bfloat16 is aborted if it takes longer than float32."""
    wide, half = (
        Compute(precision, task, config.label_smoothing, config.r_drop)
        for precision in (Float32(model), Bfloat16Copy(model))
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
    model.zero_grad()
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

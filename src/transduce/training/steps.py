"""Training steps: each computes the gradients of its batches and makes one update; both are measured."""

import gc
import math
import resource
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transduce.data.batch import Batch
from transduce.data.plan import Plan
from transduce.data.variation import Variation
from transduce.errors import RunError
from transduce.models.model import Model
from transduce.training.adam import Adam
from transduce.training.learner import Learner
from transduce.training.loader import Loader
from transduce.training.processes import SINGLE_PROCESS, Processes
from transduce.training.recipe import Recipe
from transduce.training.task import Task


class Meter:
    """Sums losses on the device and reads them rarely, because reading synchronizes with the GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._skipped_in_a_row = torch.zeros((), dtype=torch.int64, device=device)
        self._clear()

    def add(self, sums: Tensor, labels: int, norm: Tensor, work: int) -> None:
        """Add one step: the sums of its loss and negative log-likelihood, its labels, its gradient norm and its work.

        A step whose norm is not finite was skipped: it is counted as skipped, and its loss is ignored. The work is what
        the speed counts (`Task.counted`).
        """
        finite = norm.isfinite()
        self._sums += torch.where(finite, sums, 0.0)
        self._counted += finite * labels
        self._skipped += ~finite
        self._skipped_in_a_row = torch.where(finite, 0, self._skipped_in_a_row + 1)
        self._work += work

    def read(self) -> dict[str, Any]:
        """Means and number of skipped steps since the last call; without a loss if all steps were skipped."""
        values: dict[str, Any] = {}
        if labels := int(self._counted.item()):
            loss, nll = (self._sums / labels).tolist()
            values = {"loss": loss, "perplexity": math.exp(min(nll, 50))}
        seconds = self.seconds
        values |= {
            "tokens_per_second": self._work / seconds,
            "waiting": min(1.0, self._waiting / seconds),
            "memory_gb": _memory_gb(self.device),
            "skipped": int(self._skipped.item()),
            "seconds": seconds,
        }
        self._clear()
        return values

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time in this context as training."""
        since = time.monotonic()
        yield
        self.began += time.monotonic() - since

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def waited(self, since: float) -> None:
        """Count the time since then as waiting for a batch, unless a GPU was still busy with earlier steps."""
        if self.device.type != "cuda" or torch.cuda.current_stream(self.device).query():
            self._waiting += time.monotonic() - since

    def skipped_in_a_row(self) -> int:
        """Number of steps skipped since the last step that was not."""
        return int(self._skipped_in_a_row.item())

    def _clear(self) -> None:
        self._sums = torch.zeros(2, device=self.device)
        self._counted, self._skipped = torch.zeros(2, dtype=torch.int64, device=self.device)
        self._work, self.began, self._waiting = 0, time.monotonic(), 0.0


def _memory_gb(device: torch.device) -> float:
    """Peak memory so far: the GPU's, or the process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


class Steps(AbstractContextManager["Steps"]):
    """Runs the steps of a recipe one after another, starting at any of them.

    A step that does not fit in memory is repeated with its batches split into parts; later steps are split too.
    """

    def __init__(
        self,
        recipe: Recipe,
        task: Task,
        plan: Plan,
        variation: Variation,
        model: Model,
        optimizer: Adam,
        log: Callable[[str], None],
        processes: Processes = SINGLE_PROCESS,
    ) -> None:
        self.recipe, self.log, self._processes = recipe, log, processes
        self.learner = Learner(model, optimizer, task, recipe.train, processes)
        self.meter = Meter(model.device)
        fixed_length = plan.longest if self.learner.captures else None
        self._loader = Loader(task, plan, variation, model.device, fixed_length, processes=processes)
        self._batches: Generator[list[Batch]] | None = None

    def gradients(self, step: int) -> tuple[Tensor, int, int]:
        """Compute the gradients of step number `step`, counted from 0.

        Returns the sums of loss and negative log-likelihood, the number of labels, and the work, of all processes.
        """
        failed = True
        while failed:
            sums, count, work = torch.zeros(2, device=self.meter.device), 0, 0
            try:
                parts = self._parts(step)
                for part in parts:
                    sums += self.learner.compute(part)
                    count, work = count + part.count, work + (part.count if part.work is None else part.work)
                    if len(parts) > 1:
                        self.learner.collect()
                failed = False
            except torch.OutOfMemoryError:
                if self.learner.is_sharded:  # the other processes are waiting in the same layer
                    raise RunError(
                        "out of memory; batches of a sharded model are not split: lower train.batch_tokens and raise "
                        "train.accumulate by the same factor"
                    ) from None
            labels, total_work, failures = self._processes.total(count, work, failed)
            if failed := failures > 0:
                self._split_further()
        self._processes.all_reduce([sums])
        return sums, int(labels), int(total_work)

    def examples(self, step: int) -> list[int]:
        """The numbers of the examples in step number `step`."""
        plan, accumulate = self._loader.plan, self.recipe.train.accumulate
        return [int(number) for n in range(accumulate) for number in plan.batch(step * accumulate + n)]

    def _parts(self, step: int) -> list[Batch]:
        """The batches of a step, in parts if they are split; also seeds the random numbers of the step."""
        config = self.recipe.train
        if self._batches is None:
            self._batches = self._loader.ahead(step * config.accumulate)
        # Random numbers are a function of seed and step, so that a resumed run continues as if it had not stopped.
        seed = config.seed * 1_000_003 + step + (self._processes.rank << 52)
        if self.meter.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # seeding all devices takes a millisecond if there are none
        else:
            torch.manual_seed(seed)
        since = time.monotonic()
        parts = [part for _ in range(config.accumulate) for part in next(self._batches)]
        self.meter.waited(since)
        return parts

    def _split_further(self) -> None:
        self._close()
        self.learner.reset()
        release_memory()
        batch_tokens = self._loader.plan.batch_tokens
        if batch_tokens // self._loader.split <= 64:
            raise RunError(
                "out of memory even with the smallest part of a batch; use a smaller model or lower data.max_length"
            )
        self._loader = replace(self._loader, split=2 * self._loader.split)
        self.log(
            f"out of memory: from now on, batches of {batch_tokens:,} tokens are split into {self._loader.split} parts "
            "(without dropout, the result is the same)"
        )

    def _close(self) -> None:
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def __exit__(self, *_: Any) -> None:
        self._close()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the memory of the machine or of a GPU did not suffice."""
    on_cpu = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return on_cpu or isinstance(error, MemoryError | torch.OutOfMemoryError)


def release_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

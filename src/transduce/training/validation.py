"""Validation data: encoded once, shared among the processes, and the loss of a model on it."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import torch

from transduce.data.batch import Batch, in_batches, to_device
from transduce.data.data_config import DataConfig
from transduce.data.packing import Example
from transduce.data.prepare import Prepared
from transduce.errors import ConfigError
from transduce.models.model import Model
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.training.display import Display
from transduce.training.processes import Interrupted, Processes, StopRequest
from transduce.training.recipe import Recipe
from transduce.training.task import Task

T = TypeVar("T")


class Validation:
    """The validation data of a run and the loss on it; a signal interrupts it in all processes."""

    def __init__(
        self, task: Task, recipe: Recipe, prepared: Prepared, display: Display, processes: Processes, stop: StopRequest
    ) -> None:
        self.recipe, self.data, self.tokenizer, self.processes = recipe, recipe.data, prepared.tokenizer, processes
        self.texts: Sequence[tuple[Any, ...]] = prepared.valid
        self.targets = prepared.valid_targets
        """For each example, the language whose tag begins its source; None without tags."""
        self._sizes = prepared.valid_sizes
        self.score_first(recipe.train.valid_sentences)
        self._task, self._stop, self.display = task, stop, display
        self._examples = task.validation_examples(self, display.log)

    def score_first(self, sentences: int) -> None:
        """Score this many examples of each validation file."""
        self.scored = _scored(self.data, self._sizes, sentences)
        """Name of each validation file and its examples that the task scores, as a range of `texts`."""
        identity = [self.texts, sentences, *([self._sizes] if len(self.scored) > 1 else [])]
        identity += ["slots"] if self.uses_slots else []
        self.digest = hashlib.sha256(json.dumps(identity, default=_digest).encode()).hexdigest()[:16]
        """Identifies the validation data: scores on other data are not comparable."""

    @property
    def count(self) -> int:
        """Number of examples that the task scores."""
        return sum(len(self.texts[part]) for _, part in self.scored)

    @property
    def uses_slots(self) -> bool:
        """Whether protected spans are in slots, as when a model that is trained with slots translates."""
        return bool(self.recipe.augment.spans)

    @property
    def trained_tokenizer(self) -> Tokenizer:
        """The tokenizer, if it was not imported with another model."""
        if not isinstance(self.tokenizer, Tokenizer):
            raise ConfigError("the vocabulary was imported; this task needs one that transduce has learned")
        return self.tokenizer

    def by_file(self, metrics: Callable[[slice], dict[str, float]]) -> dict[str, dict[str, float]]:
        """The metrics of each validation file, given the range of its outputs; none if there is only one file."""
        ends = list(accumulate(len(self.texts[part]) for _, part in self.scored))
        parts = map(slice, [0, *ends], ends)
        return {name: metrics(part) for (name, _), part in zip(self.scored, parts, strict=True) if len(ends) > 1}

    def measure(self, model: Model, smoothing: float) -> dict[str, float]:
        """Smoothed loss and perplexity per label, and the task's own figures."""
        own_sums = self.interruptible(lambda: self._sums(model, smoothing))
        loss_sum, nll_sum, count = self.processes.total(*own_sums)
        figures = {"loss": loss_sum / count, "perplexity": math.exp(min(nll_sum / count, 50))}
        return figures | self._task.more_figures(nll_sum, self)

    def estimate_seconds(self, model: Model, smoothing: float) -> float:
        """About how long the loss takes, by its first batch."""
        batches = list(self._batches())[self.processes.share]
        began = time.monotonic()
        with torch.inference_mode():
            for examples in batches[:1]:
                batch = to_device(self._task.pack(examples, seed=0), model.device)
                self._task.loss(model, model(batch), batch, smoothing)[0].item()
        return len(batches) * (time.monotonic() - began)

    def interruptible(self, work: Callable[[], T]) -> T:
        """Do this process's share of the work; raises `Interrupted` in all processes if one received a signal."""
        result: T | None = None
        with suppress(Interrupted), self._stop.interrupting():
            result = work()
        if self.processes.any(result is None):
            raise Interrupted
        assert result is not None
        return result

    def _sums(self, model: Model, smoothing: float) -> tuple[float, float, float]:
        """Loss, negative log-likelihood and number of labels of this process's batches."""
        loss_sum = nll_sum = count = 0.0
        with torch.inference_mode():
            for batch in self.batches(model.device):
                loss, nll = self._task.loss(model, model(batch), batch, smoothing)
                loss_sum, nll_sum, count = loss_sum + loss.item(), nll_sum + nll.item(), count + batch.count
        return loss_sum, nll_sum, count

    def batches(self, device: torch.device) -> Iterator[Batch]:
        """This process's share of the batches whose loss is measured; they are always the same."""
        share = list(enumerate(self._batches()))[self.processes.share]
        self.display.phase("validating", len(share))
        for number, examples in share:
            yield to_device(self._task.pack(examples, seed=number), device)
            self.display.advance()

    def _batches(self) -> Iterator[list[Example]]:
        sizes = (max(map(len, example)) + 1 for example in self._examples)
        return in_batches(self._examples, sizes, self._task.validation_tokens)


def _digest(array: Any) -> str:
    """What stands for an array of numbers, which JSON does not have."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def _scored(data: DataConfig, sizes: Sequence[int], sentences: int) -> list[tuple[str, slice]]:
    """The name of each validation file, or of its direction if the file is the only one, and its scored examples."""
    names = [" + ".join(Path(name).name for name in entry) for entry in data.all_valid]
    if len(set(names)) < len(names):
        names = [" + ".join(entry) for entry in data.all_valid]
    if data.directions:
        owners = [(part.name, len(part.valid)) for part in data.parts for _ in part.valid]
        names = [
            direction if count == 1 else f"{direction} {name}"
            for (direction, count), name in zip(owners, names, strict=True)
        ]
    starts = accumulate(sizes, initial=0)
    return [
        (name, slice(start, start + min(size, sentences)))
        for name, start, size in zip(names, starts, sizes, strict=False)
    ]

"""The largest batch that fits in a GPU's memory, for `train.batch_tokens = "auto"`."""

import copy
from contextlib import suppress

import numpy as np
import torch

from transduce.data.batch import Batch, to_device
from transduce.data.packing import fill
from transduce.data.plan import SHORTEST_MEAN
from transduce.errors import ConfigError, RunError
from transduce.files.readers import READERS
from transduce.models.model import Model
from transduce.training.learner import Learner
from transduce.training.optimizer import make_optimizer
from transduce.training.recipe import Recipe
from transduce.training.steps import release_memory
from transduce.training.task import Task

_SMALLEST, _ROUND = 1024, 256
_MARGIN = 0.9
"""Share of the memory to use: real batches differ a little from trial batches."""


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
        _trial_step(recipe, task, copy.deepcopy(model), _trial_batch(recipe, task, model, tokens))
        peak = torch.cuda.max_memory_allocated(model.device)
    release_memory()
    return peak


def _trial_step(recipe: Recipe, task: Task, model: Model, batch: Batch) -> None:
    learner = Learner(model, make_optimizer(model, recipe.train), task, recipe.train)
    learner.compute(batch)
    learner.update(1, 0.0, batch.count)


def _trial_batch(recipe: Recipe, task: Task, model: Model, tokens: int) -> Batch:
    """A batch of random tokens in sentences of the maximum length."""
    length = recipe.data.max_length + task.markers
    random = np.random.default_rng(0)
    smallest = min(model.vocab_size, getattr(model.config, "source_vocab_size", None) or model.vocab_size)
    sentences = [
        random.integers(4, smallest, recipe.data.max_length + 1 - task.markers) for _ in range(max(1, tokens // length))
    ]
    packed = task.pack([(sentence,) * len(READERS[task.reader].streams) for sentence in sentences], seed=0)
    if not model.captures:
        return to_device(packed, model.device)
    filled = fill(packed, tokens, tokens // SHORTEST_MEAN, length, max_labels=task.max_labels)
    return to_device(filled, model.device, length)

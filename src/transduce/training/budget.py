"""The largest batch that fits a GPU, for `train.batch_tokens = "auto"`."""

import copy
from contextlib import suppress

import numpy as np
import torch

from transduce.data.packing import fill, pack
from transduce.data.plan import SHORTEST_MEAN
from transduce.errors import ConfigError, RunError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.runs.recipe import Recipe
from transduce.training.learner import Learner
from transduce.training.loader import Batch, to_device
from transduce.training.steps import release_memory

_SMALLEST, _ROUND = 1024, 256
_MARGIN = 0.9
"""Share of the memory to use: batches of text differ a little from those of the trial."""


def largest_batch(recipe: Recipe, model: EncoderDecoder, corpus_tokens: int, *, half: bool) -> int:
    """Tokens of each side of the largest batch whose step fits the memory, found by trial steps."""
    device = model.embedding.weight_VD.device
    if device.type != "cuda":
        raise ConfigError('train.batch_tokens = "auto" measures the memory of a GPU; give a number to train on a CPU')
    release_memory()
    used = torch.cuda.memory_allocated(device)
    room = (torch.cuda.mem_get_info(device)[0] + used) * _MARGIN
    most = max(_SMALLEST, corpus_tokens // 16)  # a batch as large as the corpus would leave nothing to shuffle
    measured: list[tuple[int, float]] = []
    tokens = _SMALLEST
    while tokens <= most and (peak := _peak_memory(recipe, model, tokens, half=half)) is not None:
        measured.append((tokens, peak))
        if peak > room / 4 and len(measured) > 1:  # large enough to go by
            break
        tokens *= 2
    if not measured:
        raise RunError(f"a batch of {_SMALLEST:,} tokens does not fit the GPU's memory; choose a smaller model")
    safe, peak = measured[-1]
    if len(measured) > 1:
        (before, peak_before) = measured[-2]
        per_token = (peak - peak_before) / (safe - before)
        found = min(most, int(safe + (room - peak) / per_token))
        while (found := found // _ROUND * _ROUND) > safe:
            if _peak_memory(recipe, model, found, half=half) is not None:
                return found
            found = int(found * 0.9)
    return safe


def _peak_memory(recipe: Recipe, model: EncoderDecoder, tokens: int, *, half: bool) -> float | None:
    """Most memory in use during a step with so many tokens; None where it does not fit."""
    device = model.embedding.weight_VD.device
    torch.cuda.reset_peak_memory_stats(device)
    peak: float | None = None
    with suppress(torch.OutOfMemoryError):
        _trial_step(recipe, copy.deepcopy(model), _trial_batch(recipe, model, tokens), half=half)
        peak = torch.cuda.max_memory_allocated(device)
    release_memory()
    return peak


def _trial_step(recipe: Recipe, model: EncoderDecoder, batch: Batch, *, half: bool) -> None:
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    smoothing, r_drop = recipe.train.label_smoothing, recipe.train.r_drop
    learner = Learner(
        model, optimizer, label_smoothing=smoothing, clip_norm=0.0, r_drop=r_drop, half=half, capture=half
    )
    learner.gradients([batch])
    learner.update(1, 0.0, batch.target_tokens)


def _trial_batch(recipe: Recipe, model: EncoderDecoder, tokens: int) -> Batch:
    """Sentences of the greatest length, of random words."""
    length = recipe.data.max_length + 1
    random = np.random.default_rng(0)
    sentences = [random.integers(4, model.vocab_size, length - 1) for _ in range(max(1, tokens // length))]
    packed = fill(pack([(sentence, sentence) for sentence in sentences]), tokens, tokens // SHORTEST_MEAN, length)
    return to_device(packed, model.embedding.weight_VD.device, length)

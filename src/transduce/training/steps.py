"""One training step after another: batches of the plan, their gradients, an update."""

import gc
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from transduce.data.plan import BatchPlan
from transduce.distributed.processes import ALONE, Processes
from transduce.distributed.sharded import is_sharded
from transduce.errors import RunError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.runs.recipe import Recipe
from transduce.text.tokenizer import Tokenizer
from transduce.training.learner import Learner
from transduce.training.loader import Batch, Loader
from transduce.training.meter import Meter
from transduce.training.schedule import cooled, learning_rate


class Steps(AbstractContextManager["Steps"]):
    """Takes the steps of a recipe one after another, from any of them on.

    A step that does not fit the memory is taken again in smaller parts, and so are those after it.
    """

    def __init__(
        self,
        recipe: Recipe,
        plan: BatchPlan,
        tokenizer: Tokenizer,
        model: EncoderDecoder,
        optimizer: torch.optim.Adam,
        say: Callable[[str], None],
        processes: Processes = ALONE,
    ) -> None:
        self.recipe, self.say, self._processes = recipe, say, processes
        config, device = recipe.train, model.embedding.weight_VD.device
        self._sharded = is_sharded(model)
        half = use_bfloat16(config.precision, device) and not self._sharded  # whose layers see to it themselves
        packed = half and device.type == "cuda"  # the packed engine runs: every batch can have the same shapes
        self.meter = Meter(device)
        self._learner = Learner(
            model,
            optimizer,
            label_smoothing=config.label_smoothing,
            clip_norm=config.clip_norm,
            r_drop=config.r_drop,
            half=half,
            capture=packed,
            processes=processes,
        )
        fixed_length = recipe.data.max_length + 1 if packed else None
        self._loader = Loader(plan, tokenizer, device, config.bpe_dropout, fixed_length, processes=processes)
        self._batches: Generator[list[Batch]] | None = None

    def take(self, step: int) -> tuple[float, Tensor]:
        """Take step number `step`, counted from 0; returns its learning rate and the gradients' norm."""
        config = self.recipe.train
        found = self._agreed(self._gradients(step))
        while found is None:
            self._split_further()
            found = self._agreed(self._gradients(step))
        sums, tokens = found
        rate = learning_rate(step + 1, self.recipe.model.d_model, config.warmup, config.learning_rate_scale)
        rate = cooled(rate, step + 1, config.steps, config.cooldown)
        norm = self._learner.update(step + 1, rate, tokens)
        self.meter.add(sums, tokens, norm)
        return rate, norm

    def pairs(self, step: int) -> list[int]:
        """The numbers of the pairs of sentences that step number `step` learns from."""
        plan, accumulate = self._loader.plan, self.recipe.train.accumulate
        return [int(pair) for n in range(accumulate) for pair in plan.batch(step * accumulate + n)]

    def _agreed(self, found: tuple[Tensor, int] | None) -> tuple[Tensor, int] | None:
        """The sums over all processes; None where memory ran out in one of them."""
        tokens, failed = self._processes.total(found[1] if found else 0, found is None)
        if found is None or failed:
            return None
        self._processes.add_up([found[0]])
        return found[0], int(tokens)

    def _gradients(self, step: int) -> tuple[Tensor, int] | None:
        """The step's sums of loss and plain loss, and its target tokens; None where memory ran out."""
        config = self.recipe.train
        if self._batches is None:
            self._batches = self._loader.ahead(step * config.accumulate)
        # Randomness is a function of seed and step, so a run that was stopped goes on as if it had not been.
        torch.manual_seed(config.seed * 1_000_003 + step + (self._processes.rank << 52))
        try:
            parts = [part for _ in range(config.accumulate) for part in next(self._batches)]
            return self._learner.gradients(parts), sum(part.target_tokens for part in parts)
        except torch.OutOfMemoryError:
            if self._sharded:  # the others are in the middle of the same layer, and wait for this process
                raise RunError(
                    "out of memory; batches of a sharded model are not split: lower train.batch_tokens and raise "
                    "train.accumulate by as much"
                ) from None
            return None

    def _split_further(self) -> None:
        self._close()
        self._learner.start_over()
        release_memory()
        whole = self._loader.plan.batch_tokens
        if whole // self._loader.split <= 64:
            raise RunError(
                "memory does not hold even the smallest part of a batch; use a smaller model or lower data.max_length"
            )
        self._loader = replace(self._loader, split=2 * self._loader.split)
        self.say(
            f"out of memory: from here on each batch of {whole:,} tokens is computed in {self._loader.split} parts "
            "(without dropout, the result is the same)"
        )

    def _close(self) -> None:
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def __exit__(self, *_: Any) -> None:
        self._close()


def release_memory() -> None:
    """Give back what a step that failed has left behind."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def use_bfloat16(precision: str, device: torch.device) -> bool:
    """Whether to compute in bfloat16."""
    return precision == "bfloat16" or (
        precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    )

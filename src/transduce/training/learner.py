"""Gradients and updates of a model's weights. Precision, graph capture and sharding are chosen once, here."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from transduce.models.model import Model
from transduce.training.checkpoint import begin_moments
from transduce.training.compute import CapturedCompute, Compute
from transduce.training.precision import Bfloat16Copy, Float32, gradients_of, use_bfloat16
from transduce.training.processes import SINGLE_PROCESS, Processes
from transduce.training.recipe import TrainConfig
from transduce.training.sharded import Replicated, Sharded, is_sharded
from transduce.training.task import Task


def fused_on_gpu(name: str) -> Any:
    """`fuse` or `FusedAdam` of `fast.kernels`, which the core does not import."""
    modules = {"fuse": "transduce.fast.kernels.fuse", "FusedAdam": "transduce.fast.kernels.adam"}
    return getattr(import_module(modules[name]), name)


class Learner:
    """Trains a model: `compute` the gradients of one or more batches, then `update` the weights."""

    def __init__(
        self,
        model: Model,
        optimizer: torch.optim.Adam,
        task: Task,
        config: TrainConfig,
        processes: Processes = SINGLE_PROCESS,
    ) -> None:
        self.optimizer, self.clip_norm = optimizer, config.clip_norm
        self._weights: list[Tensor] = list(model.parameters())
        begin_moments(optimizer)
        sharded = is_sharded(model)
        half = use_bfloat16(config.precision, model.device) and not sharded  # FSDP2 has its own mixed precision
        self.captures = half and model.device.type == "cuda" and model.captures
        """Whether gradients are computed by a CUDA graph, for which all batches must have the same shapes."""
        self.sharing = Sharded(processes) if sharded else Replicated(processes)
        self.precision = Bfloat16Copy(model) if half else Float32(model)
        if half and model.device.type == "cuda":
            fused_on_gpu("fuse")(self.precision.worker)
        self.precision.worker.train()
        computing = CapturedCompute if self.captures else Compute
        self.compute = computing(self.precision, task, config.label_smoothing, config.r_drop)
        self._fuses = self.captures and not processes.communicates and find_spec("triton") is not None
        self._fused_adam: Any = None

    @torch.no_grad()
    def update(self, number: int, rate: float, count: int, *, collected: bool = False) -> Tensor:
        """Make update `number`, counted from 1, with the mean gradient over `count` labels; returns its norm.

        If the norm is not finite, the weights stay as they are. `collected` means that the gradients of several batches
        have already been summed (`precision.collect`).
        """
        if not collected:
            if self._fuses:
                return self._fused_update(number, rate, count)
            self.precision.collect()
        gradients = gradients_of(self._weights)
        self.sharing.reduce(gradients)
        torch._foreach_mul_(gradients, 1 / count)
        norm = self.sharing.norm(gradients)
        for state in self.optimizer.state.values():
            state["step"].fill_(number - 1)  # PyTorch's count misses fused and skipped updates
        if not norm.isfinite():
            self.optimizer.zero_grad()
            return norm
        if self.clip_norm:
            torch._foreach_mul_(gradients, (self.clip_norm / (norm + 1e-6)).clamp(max=1.0))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.precision.refresh()
        return norm

    def reset(self) -> None:
        """Discard the gradients since the last update, and the recorded graph."""
        self.optimizer.zero_grad()
        self.precision.worker.zero_grad()
        self.compute.reset()
        self._fused_adam = None

    def _fused_update(self, number: int, rate: float, count: int) -> Tensor:
        if self._fused_adam is None:
            self._fused_adam = fused_on_gpu("FusedAdam")(
                self.optimizer, list(self.precision.worker.parameters()), self._weights
            )
        return self._fused_adam.step(number, rate, 1 / count, self.clip_norm)

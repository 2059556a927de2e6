"""Gradients and updates of a model's weights. Precision, graph capture and sharding are chosen once, here."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from transduce.fast import kernels
from transduce.models.model import Model
from transduce.training.checkpoint import begin_moments
from transduce.training.compute import CapturedCompute, Compute
from transduce.training.precision import Bfloat16Copy, Float32, gradients_of, use_bfloat16
from transduce.training.processes import SINGLE_PROCESS, Processes
from transduce.training.sharded import Replicated, Sharded, is_sharded
from transduce.training.task import Task
from transduce.training.train_config import TrainConfig

if TYPE_CHECKING:
    from transduce.fast.kernels.adam import FusedAdam


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
        self.precision.worker.train()
        computing = CapturedCompute if self.captures else Compute
        self.compute = computing(self.precision, task, config.label_smoothing, config.r_drop)
        worker_weight_VD = self.precision.worker.output_weight_VD
        self._fuses = self.captures and not processes.communicates and kernels.fit(worker_weight_VD)
        self._fused_adam: FusedAdam | None = None

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
            from transduce.fast.kernels.adam import FusedAdam

            self._fused_adam = FusedAdam(self.optimizer, list(self.precision.worker.parameters()), self._weights)
        return self._fused_adam.step(number, rate, 1 / count, self.clip_norm)

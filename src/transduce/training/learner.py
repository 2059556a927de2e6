"""What a step does with its batches: gradients first, then an update of the weights."""

import copy
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from transduce.distributed.processes import ALONE, Processes
from transduce.distributed.sharded import is_sharded, local
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn import kernels
from transduce.nn.cuda_graph import Captured
from transduce.nn.loss import smoothed_cross_entropy
from transduce.nn.r_drop import disagreement
from transduce.runs.checkpoint import begin_moments
from transduce.training.loader import Batch

if TYPE_CHECKING:
    from transduce.nn.kernels.adam import FusedAdam


class Learner:
    """Teaches a model step by step.

    The weights that learn are float32. With `half`, a bfloat16 copy of them computes the gradients. With `capture`,
    that computation is recorded once as a CUDA graph, for batches that all have the same shapes.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        optimizer: torch.optim.Adam,
        *,
        label_smoothing: float,
        clip_norm: float,
        r_drop: float = 0.0,
        half: bool,
        capture: bool,
        processes: Processes = ALONE,
    ) -> None:
        self.optimizer, self.label_smoothing, self.clip_norm = optimizer, label_smoothing, clip_norm
        self.r_drop = r_drop
        self._processes, self._sharded = processes, is_sharded(model)
        self._weights: list[Tensor] = list(model.parameters())
        begin_moments(optimizer)
        self._worker = copy.deepcopy(model) if half else model
        self._half, self._capture = half, capture
        if half:
            for weight in self._worker.parameters():
                weight.data = weight.data.bfloat16()
        self._worker.train()
        self._captured: Captured | None = None
        self._fused_adam: FusedAdam | None = None

    def gradients(self, parts: Sequence[Batch]) -> Tensor:
        """Compute the gradients of the parts' summed loss; returns the sums of loss and plain loss.

        A loss that is not a finite number makes the gradients so too.
        """
        sums = torch.zeros(2, device=self._weights[0].device)
        for part in parts:
            sums += self._replay(part) if self._capture else self._compute(part)
            if self._half and len(parts) > 1:
                self._widen()
        return sums

    @torch.no_grad()
    def update(self, number: int, rate: float, tokens: int) -> Tensor:
        """Take update `number`, counted from 1, against the gradients per token; returns their norm.

        Where that is not a finite number, the weights stay as they are.
        """
        if self._half and not _gradients(self._weights):
            if self._captured and self._processes.count == 1 and kernels.fit(self._worker.embedding.weight_VD):
                return self._fused_update(number, rate, tokens)
            self._widen()
        gradients = _gradients(self._weights)
        if not self._sharded:  # or they are sums over the processes already
            self._processes.add_up(gradients)
        torch._foreach_mul_(gradients, 1 / tokens)
        norm = torch.nn.utils.get_total_norm(gradients)
        if self._sharded:
            squares = norm.square()
            self._processes.add_up([squares])
            norm = squares.sqrt()
        if not norm.isfinite():
            self.optimizer.zero_grad()
            # It counts nevertheless, as it does for the learning rate and in a checkpoint.
            torch._foreach_add_([state["step"] for state in self.optimizer.state.values()], 1)
            return norm
        if self.clip_norm:
            torch._foreach_mul_(gradients, (self.clip_norm / (norm + 1e-6)).clamp(max=1.0))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self._half:
            for state in self.optimizer.state.values():
                state["step"].fill_(number - 1)  # fused updates, of which there may have been some, do not count there
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self._half:
            torch._foreach_copy_(list(self._worker.parameters()), self._weights)
        return norm

    def start_over(self) -> None:
        """Forget the gradients since the last update, and how they were computed."""
        self.optimizer.zero_grad()
        self._worker.zero_grad()
        self._captured = self._fused_adam = None

    def _compute(self, batch: Batch) -> Tensor:
        worker = self._worker
        if self._half:
            worker.zero_grad()
        loss, nll, hidden_MD = self._pass(batch)
        if self.r_drop:
            second_loss, second_nll, second_MD = self._pass(batch)
            apart = disagreement(hidden_MD, second_MD, batch.labels_M, worker.embedding.weight_VD)
            # Half of what its paper adds up, so that it compares with the loss of one pass.
            loss, nll = (loss + second_loss + self.r_drop / 2 * apart) / 2, (nll + second_nll) / 2
        loss.backward()
        sums = torch.stack([loss.detach(), nll])
        _gradients(worker.parameters())[0].view(-1)[:1].add_(0.0 * sums.sum())  # nan, where that is not finite
        return sums

    def _pass(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, plain loss and the hidden vectors they come from."""
        hidden_MD = self._worker(batch.src_N, batch.src_segments, batch.tgt_M, batch.tgt_segments)
        weight_VD = self._worker.embedding.weight_VD
        return *smoothed_cross_entropy(hidden_MD, batch.labels_M, weight_VD, self.label_smoothing), hidden_MD

    def _replay(self, batch: Batch) -> Tensor:
        if self._captured is None:
            self._captured = Captured(
                lambda tensors: self._compute(batch.with_tensors(tensors)), batch.tensors, self._worker.zero_grad
            )
        return self._captured(batch.tensors)

    def _widen(self) -> None:
        """Add the gradients of the bfloat16 copy to those of the weights."""
        wide = [torch.empty_like(weight) for weight in self._weights]
        torch._foreach_copy_(wide, _gradients(self._worker.parameters()))
        if before := _gradients(self._weights):
            torch._foreach_add_(wide, before)
        for weight, gradient in zip(self._weights, wide, strict=True):
            weight.grad = gradient

    def _fused_update(self, number: int, rate: float, tokens: int) -> Tensor:
        if self._fused_adam is None:
            from transduce.nn.kernels.adam import FusedAdam

            self._fused_adam = FusedAdam(self.optimizer, list(self._worker.parameters()))
        return self._fused_adam.step(number, rate, 1 / tokens, self.clip_norm)


def _gradients(weights: Iterable[Tensor]) -> list[Tensor]:
    return [local(weight.grad) for weight in weights if weight.grad is not None]

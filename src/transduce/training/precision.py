"""The precision in which gradients are computed. The weights that are trained are always float32."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from transduce.models.model import Model
from transduce.training.sharded import local_shard


class Float32:
    """The weights themselves compute their gradients, in their own precision."""

    def __init__(self, model: Model) -> None:
        self.worker = model
        """The model that computes."""

    def begin(self) -> None:
        """Called before every forward pass. Gradients of several batches are summed, so nothing is cleared here."""

    def collect(self) -> None:
        """Add the worker's gradients to those of the weights; here, they are the same tensors."""

    def refresh(self) -> None:
        """Copy the updated weights to the worker; here, they are the same tensors."""


class Bfloat16Copy(Float32):
    """A bfloat16 copy of the weights computes the gradients."""

    def __init__(self, model: Model) -> None:
        self._weights: list[Tensor] = list(model.parameters())
        self.worker = copy.deepcopy(model)
        for weight in self.worker.parameters():
            weight.data = weight.data.bfloat16()
        for module in self.worker.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()  # cuDNN wants the weights of a layer in one piece of memory

    def begin(self) -> None:
        """Clear the copy's gradients, so that each batch writes its own without adding to earlier ones."""
        self.worker.zero_grad()

    def collect(self) -> None:
        """Add the copy's gradients, converted to float32, to those of the weights."""
        wide = [torch.empty_like(weight) for weight in self._weights]
        torch._foreach_copy_(wide, gradients_of(self.worker.parameters()))
        if before := gradients_of(self._weights):
            torch._foreach_add_(wide, before)
        for weight, gradient in zip(self._weights, wide, strict=True):
            weight.grad = gradient

    def refresh(self) -> None:
        """Round the updated weights to bfloat16."""
        torch._foreach_copy_(list(self.worker.parameters()), self._weights)


def use_bfloat16(precision: str, device: torch.device) -> bool:
    """Whether the setting `train.precision` means bfloat16 on this device."""
    return precision == "bfloat16" or (
        precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    )


def gradients_of(weights: Iterable[Tensor]) -> list[Tensor]:
    """The gradients that exist; of a sharded model, this process's shards."""
    return [local_shard(weight.grad) for weight in weights if weight.grad is not None]

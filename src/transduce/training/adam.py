"""Adam, the optimizer of the paper (section 5.3): the moments of every weight, and the update.

torch's class for it would import torch's compiler, which takes longer than the rest of a start of training.
"""

from collections.abc import Iterable
from itertools import groupby

import torch
from torch import Tensor
from torch.optim.adam import adam

MOMENTS = ("exp_avg", "exp_avg_sq")
"""The names of the first and the second moment, which checkpoints store."""


class Adam:
    """Updates weights by their gradients. Weight decay, if there is any, is decoupled from the gradients (AdamW)."""

    def __init__(
        self,
        weights: Iterable[Tensor],
        beta1: float = 0.9,
        beta2: float = 0.98,
        epsilon: float = 1e-9,
        weight_decay: float = 0.0,
    ) -> None:
        self.weights = sorted(weights, key=lambda weight: weight.dim() < 2)  # those that decay first
        self.beta1, self.beta2, self.epsilon, self.weight_decay = beta1, beta2, epsilon, weight_decay
        self.moments = {weight: {name: torch.zeros_like(weight) for name in MOMENTS} for weight in self.weights}
        self._fused = all(weight.device.type in ("cpu", "cuda") for weight in self.weights)
        # The fused update reads its number on the device of the weights, others on the CPU.
        self._numbers = {
            weight: torch.zeros((), device=weight.device if self._fused else "cpu") for weight in self.weights
        }

    def decay_of(self, weight: Tensor) -> float:
        """Matrices decay; biases and the weights of norms do not."""
        return self.weight_decay if weight.dim() >= 2 else 0.0

    @torch.no_grad()
    def step(self, number: int, rate: float) -> None:
        """Make update `number`, counted from 1. Weights without a gradient stay as they are."""
        for decay, group in groupby(self.weights, self.decay_of):
            weights = [weight for weight in group if weight.grad is not None]
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            first, second = ([self.moments[weight][name] for weight in weights] for name in MOMENTS)
            numbers = [self._numbers[weight].fill_(number - 1) for weight in weights]  # `adam` counts the update itself
            adam(
                weights, gradients, first, second, [], numbers, fused=self._fused, lr=rate, beta1=self.beta1,
                beta2=self.beta2, eps=self.epsilon, weight_decay=decay, decoupled_weight_decay=True, amsgrad=False,
                maximize=False,
            )  # fmt: skip

    def zero_grad(self) -> None:
        """Discard the gradients."""
        for weight in self.weights:
            weight.grad = None

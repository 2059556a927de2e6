"""Low-rank updates of weights (LoRA, Hu et al., 2021): W + scale * B A, of which only A and B are trained.

The model computes with the sum as a plain weight, so that layers, kernels and engines are the same as without updates.
The gradients of A and B follow from that of the sum, by the chain rule.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from transduce.config import require
from transduce.nn.kinds import LINEAR_MAPS, LORA_A, LORA_B


def updated(weight_NK: Tensor, a_RK: Tensor, b_NR: Tensor, scale: float) -> Tensor:
    return torch.addmm(weight_NK, b_NR, a_RK, alpha=scale)


class LowRank:
    """The updates of some weights of a model, and other weights that are trained entirely, by the weights' names."""

    def __init__(self, model: nn.Module, rank: int, scale: float, layers: set[str], new_parts: tuple[str, ...]) -> None:
        """`layers` are the names of linear maps; weights whose name begins with one of `new_parts` have no base."""
        weights = dict(model.named_parameters())
        matrices = {name: weight for name, weight in weights.items() if name.endswith(".weight") and weight.dim() == 2}
        known = {_layer(name) for name in matrices}
        unknown = ", ".join(sorted(layers if not layers & known else layers - known - {*LINEAR_MAPS}))
        there = ", ".join(sorted(known)) or "none"
        require(not unknown, f"train.lora_layers: the model has no linear maps {unknown}; it has {there}")
        whole = {name: weight for name, weight in weights.items() if name.startswith(new_parts)}
        self.scale = scale
        self._weights = {name: x for name, x in matrices.items() if _layer(name) in layers and name not in whole}
        self._whole = whole
        self._base = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._trained: dict[str, nn.Parameter] = {}
        for name, weight_NK in self._base.items():
            (N, K) = weight_NK.shape
            self._trained[name + LORA_A] = nn.Parameter(weight_NK.new_empty(rank, K).normal_(std=K**-0.5))
            self._trained[name + LORA_B] = nn.Parameter(weight_NK.new_zeros(N, rank))
        self._trained |= {name: nn.Parameter(weight.detach().clone()) for name, weight in whole.items()}
        for name, weight in weights.items():
            weight.requires_grad_(name in self._weights or name in whole)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return iter(self._trained.items())

    def state_dict(self) -> dict[str, Tensor]:
        return {name: parameter.detach() for name, parameter in self._trained.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, parameter in self._trained.items():
            parameter.copy_(state[name])
        self.apply()

    @torch.no_grad()
    def apply(self) -> None:
        """Compute the weights of the model."""
        for name, weight_NK in self._weights.items():
            weight_NK.copy_(
                updated(self._base[name], self._trained[name + LORA_A], self._trained[name + LORA_B], self.scale)
            )
        for name, weight in self._whole.items():
            weight.copy_(self._trained[name])

    def add_gradients(self, gradients: Mapping[str, Tensor]) -> None:
        """Add the gradients of A and B, given those of the model's weights, which may be in another precision."""
        for name in self._weights:
            a_RK, b_NR = self._trained[name + LORA_A], self._trained[name + LORA_B]
            gradient_NK = gradients[name].to(a_RK.dtype)
            _add(a_RK, b_NR.detach().T @ gradient_NK * self.scale)
            _add(b_NR, gradient_NK @ a_RK.detach().T * self.scale)
        for name in self._whole:
            _add(self._trained[name], gradients[name].to(self._trained[name].dtype, copy=True))


def _layer(name: str) -> str:
    """The name of the linear map that a weight belongs to."""
    return name.split(".")[-2]


def _add(parameter: nn.Parameter, gradient: Tensor) -> None:
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

"""Linear layers: their initialisation, and a fused form for a GPU."""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.fast import kernels


class Linear(nn.Linear):
    """x W^T + b, optionally followed by max(0, ·)."""

    def forward(self, x_ND: Tensor, *, relu: bool = False, bias: bool = True) -> Tensor:
        """(N, width in) to (N, width out); with `bias=False`, b is left to the caller."""
        if not bias or self.bias is None:
            y_ND = F.linear(x_ND, self.weight)
            return y_ND.relu_() if relu else y_ND
        if kernels.fit(x_ND) and self.weight.dtype == x_ND.dtype:
            return _FusedLinear.apply(x_ND, self.weight, self.bias, relu)  # type: ignore[no-untyped-call]
        y_ND = F.linear(x_ND, self.weight, self.bias)
        return y_ND.relu_() if relu else y_ND


def projections(width_in: int, widths_out: list[int], *, bias: bool = True) -> Linear:
    """One linear layer for several projections, each initialised separately (Xavier, zero bias)."""
    linear = Linear(width_in, sum(widths_out), bias=bias)
    for part in torch.split(linear.weight.detach(), widths_out):
        nn.init.xavier_uniform_(part)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def draw_normal(stack: nn.ModuleList, deviation: float) -> None:
    """Draw the initial weights of all linear layers from a normal distribution, as GPT-2 and BERT do."""
    for module in stack.modules():
        if isinstance(module, Linear):
            nn.init.normal_(module.weight, std=deviation)


@torch.no_grad()
def scale_residual_outputs(stack: nn.ModuleList, sublayers: int) -> None:
    """Scale the initial output projection of every sub-layer by 1 / sqrt(number of sub-layers in the stack).

    The sum of all sub-layer outputs then starts with the variance of the residual stream. With plain Xavier, the
    post-norm base model needs 1.5 times as many steps to reach the same loss (docs/log.md).
    """
    for name, parameter in stack.named_parameters():
        if name.endswith(("out.weight", "outer.weight")):
            parameter.mul_((len(stack) * sublayers) ** -0.5)


@cache
def _ones(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones(8, length, dtype=dtype, device=device)  # one row suffices, but matrix products are tiled by eight


class _FusedLinear(torch.autograd.Function):
    """Bias and max(0, ·) are fused into the matrix product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        y = torch._addmm_activation(bias, x, weight.t()) if relu else torch.addmm(bias, x, weight.t())
        ctx.save_for_backward(x, weight, *([y] if relu else []))
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        from transduce.fast.kernels.relu_gradient import relu_gradient

        x, weight, *y = ctx.saved_tensors
        if y:
            dy, dbias = relu_gradient(dy, y[0])
        else:  # the sum over all rows as a matrix product, which is several times faster than torch's sum
            dbias = (_ones(len(dy), dy.dtype, dy.device) @ dy)[0]
        return dy @ weight, dy.t() @ x, dbias, None

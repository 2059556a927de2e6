"""Linear layers: how they start, and a form with a leaner gradient for a GPU."""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn import kernels


class Linear(nn.Linear):
    """x W^T + b, and max(0, x W^T + b) where asked."""

    def forward(self, x_ND: Tensor, relu: bool = False) -> Tensor:
        """(N, width in) to (N, width out)."""
        if kernels.fit(x_ND) and self.weight.dtype == x_ND.dtype:
            return _FusedLinear.apply(x_ND, self.weight, self.bias, relu)  # type: ignore[no-untyped-call]
        y_ND = F.linear(x_ND, self.weight, self.bias)
        return y_ND.relu_() if relu else y_ND

    def without_bias(self, x_ND: Tensor) -> Tensor:
        """x W^T, for callers who add the bias themselves."""
        return F.linear(x_ND, self.weight)


def projections(width_in: int, widths_out: list[int]) -> Linear:
    """One linear layer for several projections, each initialised as if it stood alone (Xavier, zero bias)."""
    linear = Linear(width_in, sum(widths_out))
    for part in torch.split(linear.weight.detach(), widths_out):
        nn.init.xavier_uniform_(part)
    nn.init.zeros_(linear.bias)
    return linear


@torch.no_grad()
def calm_residuals(stack: nn.ModuleList, sublayers: int) -> None:
    """Scale down what each sub-layer adds to the residual stream by the square root of how many there are.

    All of them together then start no louder than what they are added to. With plain Xavier the post-norm base model
    learns too, but needs half as many steps again for the same loss (docs/log.md).
    """
    for name, parameter in stack.named_parameters():
        if name.endswith(("out.weight", "outer.weight")):
            parameter.mul_((len(stack) * sublayers) ** -0.5)


@cache
def _ones(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones(8, length, dtype=dtype, device=device)  # one row would do; matrix products want eight


class _FusedLinear(torch.autograd.Function):
    """The bias and max(0, .) ride on the matrix product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        y = torch._addmm_activation(bias, x, weight.t()) if relu else torch.addmm(bias, x, weight.t())
        ctx.save_for_backward(x, weight, *([y] if relu else []))
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        from transduce.nn.kernels.relu_gradient import relu_gradient

        x, weight, *y = ctx.saved_tensors
        if y:
            dy, dbias = relu_gradient(dy, y[0])
        else:  # the sum over all rows as a matrix product, which is several times faster than torch's sum
            dbias = (_ones(len(dy), dy.dtype, dy.device) @ dy)[0]
        return dy @ weight, dy.t() @ x, dbias, None

"""Linear layers and their initialisation."""

import torch
from torch import nn


class Linear(nn.Linear):
    """x W^T + b, for vectors (N, width)."""


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

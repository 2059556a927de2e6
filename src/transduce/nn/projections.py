"""Linear layers as the model starts with them."""

import torch
from torch import nn


def projections(width_in: int, widths_out: list[int]) -> nn.Linear:
    """One linear layer for several projections, each initialised as if it stood alone (Xavier, zero bias)."""
    linear = nn.Linear(width_in, sum(widths_out))
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

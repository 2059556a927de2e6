"""Norms: layer norm, as in the paper, or root mean square norm (RMSNorm), which neither centres nor shifts."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn.kinds import NormType as NormType


class LayerNorm(nn.LayerNorm):
    """torch's layer norm; on a CPU, bfloat16 is computed in float32.

    There torch sums the gradients of weight and bias in bfloat16: over 4,000 tokens, that of the bias is wrong by a
    third.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise vectors of width d_model."""
        if x.dtype != torch.bfloat16 or x.device.type != "cpu":
            return super().forward(x)
        weight, bias = self.weight.float(), self.bias.float()
        return F.layer_norm(x.float(), self.normalized_shape, weight, bias, self.eps).to(x.dtype)


def make_norm(kind: NormType, d_model: int, epsilon: float) -> nn.LayerNorm | nn.RMSNorm:
    """A norm of vectors of width d_model; `epsilon` is added to the variance, or to the mean square."""
    return LayerNorm(d_model, eps=epsilon) if kind == "layer" else nn.RMSNorm(d_model, eps=epsilon)

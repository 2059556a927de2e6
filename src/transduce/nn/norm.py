"""Norms: layer norm, as in the paper, or root mean square norm (RMSNorm), which neither centres nor shifts."""

from torch import nn

from transduce.nn.kinds import NormType as NormType


def make_norm(kind: NormType, d_model: int, epsilon: float) -> nn.LayerNorm | nn.RMSNorm:
    """A norm of vectors of width d_model; `epsilon` is added to the variance, or to the mean square."""
    return nn.LayerNorm(d_model, eps=epsilon) if kind == "layer" else nn.RMSNorm(d_model, eps=epsilon)

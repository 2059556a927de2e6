"""Embeddings (section 3.4): one matrix for source, target and the output projection, scaled by sqrt(d_model)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn import kernels
from transduce.nn.dropout import Dropout
from transduce.nn.layers import Branches
from transduce.nn.positions import Positions


class Embedding(nn.Module):
    """Token and position vectors, summed, with dropout on the sum (section 5.4)."""

    def __init__(self, vocab_size: int, positions: Positions, d_model: int, dropout: float) -> None:
        super().__init__()
        # After scaling by sqrt(d_model), token vectors start with unit variance, like the sinusoids added to them.
        self.weight_VD = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)
        self.positions = positions
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(d_model)

    def forward(self, token_N: Tensor, position_N: Tensor) -> Branches:
        """(N) tokens at (N) positions to (N, D)."""
        table_TD = self.positions.table_TD
        if kernels.fit(self.weight_VD) and not table_TD.requires_grad:
            from transduce.nn.kernels.embed import Embed

            p = self.dropout.p if self.training else 0.0
            return Embed.apply(token_N, position_N, self.weight_VD, table_TD, self.scale, p)  # type: ignore[no-untyped-call]
        x_ND = F.embedding(token_N, self.weight_VD) * self.scale + self.positions(position_N)
        x_ND = self.dropout(x_ND).to(self.weight_VD.dtype)
        return x_ND, x_ND

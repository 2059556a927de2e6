"""Embeddings (section 3.4): in the paper one matrix for source, target and output, scaled by sqrt(d_model)."""

import math

import torch
from torch import Tensor, nn

from transduce.nn.dropout import Dropout
from transduce.nn.kinds import EmbeddingKind as EmbeddingKind
from transduce.nn.lookup import lookup
from transduce.nn.positions import Positions

PLAIN_DEVIATION = 0.02
"""Standard deviation of initial weights if embeddings are not scaled (GPT-2, BERT)."""


def token_vectors(vocab_size: int, d_model: int, kind: EmbeddingKind) -> nn.Parameter:
    """The initial vectors (V, D) of all tokens."""
    # After scaling by sqrt(d_model), token vectors start with unit variance, like the sinusoids added to them.
    deviation = d_model**-0.5 if kind == "scaled" else PLAIN_DEVIATION
    return nn.Parameter(torch.randn(vocab_size, d_model) * deviation)


class Embedding(nn.Module):
    """Token and position vectors, summed, with dropout on the sum (section 5.4).

    Token vectors are scaled by sqrt(d_model), as in the paper, or not ("plain"); or the sum goes through `norm`.
    Without `positions`, there are only token vectors. Without `vocab_size`, they are those of another embedding.
    """

    weight_VD: Tensor
    trained_V1: Tensor | None
    """Which vectors are trained; None if all are."""

    def __init__(
        self,
        vocab_size: int | None,
        positions: Positions | None,
        d_model: int,
        dropout: float,
        kind: EmbeddingKind = "scaled",
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if vocab_size is not None:
            self.weight_VD = token_vectors(vocab_size, d_model, kind)
        self.register_buffer("trained_V1", None, persistent=False)
        self.positions = positions
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(d_model) if kind == "scaled" else 1.0
        self.norm = norm

    def forward(self, token_N: Tensor, position_N: Tensor) -> Tensor:
        """(N) tokens at (N) positions to (N, D)."""
        return self.embed(token_N, position_N, self.used_weight_VD)

    def embed(self, token_N: Tensor, position_N: Tensor, weight_VD: Tensor) -> Tensor:
        """`forward` with the matrix of another embedding."""
        x_ND = lookup(token_N, weight_VD)
        if self.scale != 1.0:
            x_ND = x_ND * self.scale
        if self.positions is not None:
            x_ND = x_ND + self.positions(position_N)
        if self.norm is not None:
            x_ND = self.norm(x_ND.to(weight_VD.dtype))
        return self.dropout(x_ND).to(weight_VD.dtype)

    def fix_at_zero(self, token: int) -> None:
        """Make the vector of a token zero, and keep it so in training."""
        self.weight_VD.data[token] = 0
        trained_V1 = torch.ones(len(self.weight_VD), 1, dtype=torch.bool)
        trained_V1[token] = False
        self.trained_V1 = trained_V1

    @property
    def used_weight_VD(self) -> Tensor:
        """The matrix, of which vectors that are fixed at zero get no gradient."""
        if self.trained_V1 is None or not self.training:
            return self.weight_VD
        return torch.where(self.trained_V1, self.weight_VD, 0)

"""Positional encoding (section 3.5), added to the token embeddings."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.errors import ConfigError


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos of the same, as (length, d_model)."""
    position_T1 = torch.arange(length, dtype=torch.float64)[:, None]
    rate = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    table_TD = torch.empty(length, d_model, dtype=torch.float64)
    table_TD[:, 0::2] = torch.sin(position_T1 * rate)
    table_TD[:, 1::2] = torch.cos(position_T1 * rate[: d_model // 2])
    return table_TD.float()


class Positions(nn.Module):
    """A table of position vectors: the paper's sinusoids, or learned ones (Table 3, row E)."""

    table_TD: Tensor

    def __init__(self, kind: Literal["sinusoidal", "learned"], max_positions: int, d_model: int) -> None:
        super().__init__()
        if kind == "learned":
            self.table_TD = nn.Parameter(torch.randn(max_positions, d_model) * 0.02)
        else:
            self.register_buffer("table_TD", sinusoids(max_positions, d_model), persistent=False)

    def forward(self, position_N: Tensor) -> Tensor:
        """The vectors of these positions."""
        # The gradient of an index sums with atomics, in any order; that of F.embedding is deterministic on a CPU.
        return F.embedding(position_N, self.table_TD)

    def require(self, length: int) -> None:
        """Make sure that the table has this many positions: sinusoids grow, a learned table cannot."""
        reach, d_model = self.table_TD.shape
        if length <= reach:
            return
        if isinstance(self.table_TD, nn.Parameter):
            raise ConfigError(f"a text of {length} tokens exceeds the {reach} learned positions (model.max_positions)")
        self.table_TD = sinusoids(max(length, 2 * reach), d_model).to(self.table_TD)

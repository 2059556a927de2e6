"""Positional encoding (section 3.5): where a token stands, added to what it is."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

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
    """A table of position vectors: the paper's sinusoids, or learnt ones (Table 3, row E)."""

    table_TD: Tensor

    def __init__(self, kind: Literal["sinusoidal", "learned"], max_positions: int, d_model: int) -> None:
        super().__init__()
        if kind == "learned":
            self.table_TD = nn.Parameter(torch.randn(max_positions, d_model) * 0.02)
        else:
            self.register_buffer("table_TD", sinusoids(max_positions, d_model), persistent=False)

    def forward(self, position_N: Tensor) -> Tensor:
        """The vectors of these places."""
        return self.table_TD[position_N]

    def require(self, length: int) -> None:
        """Make sure that the table reaches so far: sinusoids grow, a learnt table cannot."""
        reach, d_model = self.table_TD.shape
        if length <= reach:
            return
        if isinstance(self.table_TD, nn.Parameter):
            raise ConfigError(f"a text of {length} tokens is beyond the {reach} learnt positions (model.max_positions)")
        self.table_TD = sinusoids(max(length, 2 * reach), d_model).to(self.table_TD)

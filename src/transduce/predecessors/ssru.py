"""The simpler simple recurrent unit (Kim et al., 2019), which replaces self-attention in the decoders of small models.

It keeps one vector for each sentence instead of keys and values for each token.
"""

import torch
from torch import Tensor, nn

from transduce.nn.cache import KVCache
from transduce.nn.linear import projections
from transduce.nn.segments import Segments


class SSRU(nn.Module):
    """c_t = f_t c_(t-1) + (1 - f_t) x_t W with f_t = sigmoid(x_t W_f + b_f); the output is max(0, c_t)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.input = projections(d_model, [d_model], bias=False)
        self.forget = projections(d_model, [d_model])

    def forward(self, x_ND: Tensor, segments: Segments, _: Tensor | None = None) -> Tensor:
        """(N, D) to (N, D): each token depends on itself and earlier ones of its segment."""
        layout = segments.layout
        keep_BTD, new_BTD = (layout.pad(x) for x in self._gates(x_ND))
        state_BD, states = torch.zeros_like(new_BTD[:, 0]), []
        for t in range(segments.longest):
            state_BD = keep_BTD[:, t] * state_BD + new_BTD[:, t]
            states.append(state_BD)
        return layout.unpad(torch.stack(states, dim=1)).relu()

    def step(self, x_RD: Tensor, position_R: Tensor, cache: KVCache, _: Tensor | None = None) -> Tensor:
        """`forward` for one new token per row."""
        return cache.recur(*self._gates(x_RD)).relu()

    def _gates(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """The share of the state that is kept, and what is added to it."""
        keep_ND = self.forget(x_ND).sigmoid()
        return keep_ND, (1 - keep_ND) * self.input(x_ND)

"""The attention of recurrent decoders: additive scores (Bahdanau et al., 2014) or dot products (Luong et al., 2015).

Both compare a query with keys that are computed once per source, on a padded grid. They have one head, and the values
are the encoder's output itself.
"""

from typing import Literal

import torch
from torch import Tensor, nn

Scoring = Literal["additive", "dot"]


def additive_scores(q_BTK: Tensor, k_BSK: Tensor, v_K: Tensor) -> Tensor:
    """v · tanh(q + k) for every pair of a query and a key, as (B, T, S)."""
    return torch.tanh(q_BTK[:, :, None] + k_BSK[:, None]) @ v_K


def masked_softmax(scores_BTS: Tensor, mask_B1S: Tensor) -> Tensor:
    """Softmax over the keys that the mask allows; zeros if it allows none."""
    lowest = torch.finfo(scores_BTS.dtype).min
    return scores_BTS.masked_fill(~mask_B1S, lowest).softmax(dim=-1).masked_fill(~mask_B1S, 0.0)


class RecurrentAttention(nn.Module):
    """The weights with which the state of a recurrent decoder attends to the encoder's output."""

    def __init__(self, d_model: int, scoring: Scoring) -> None:
        super().__init__()
        additive = scoring == "additive"
        self.key = nn.Linear(d_model, d_model, bias=additive)
        """U_a of Bahdanau, W_a of Luong's score "general"."""
        self.query = nn.Linear(d_model, d_model, bias=False) if additive else None
        """W_a of Bahdanau."""
        self.v_K = nn.Parameter(torch.randn(d_model) * d_model**-0.5) if additive else None

    def keys(self, memory_BSD: Tensor) -> Tensor:
        """The keys (B, S, K) of the encoder's output."""
        return self.key(memory_BSD)

    def align(self, state_BTD: Tensor, k_BSK: Tensor, mask_B1S: Tensor) -> Tensor:
        """The attention weights (B, T, S) of T states per source."""
        if self.query is None or self.v_K is None:
            scores_BTS = state_BTD @ k_BSK.transpose(1, 2)
        else:
            scores_BTS = additive_scores(self.query(state_BTD), k_BSK, self.v_K)
        return masked_softmax(scores_BTS, mask_B1S)

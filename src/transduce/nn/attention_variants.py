"""Attention other than the paper's: other scores (section 3.2.1), and restricted self-attention (section 4).

The functions are definitions, written out on a padded grid, for measurements and comparisons. With the defaults they
are `nn.attention.attend`.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from transduce.nn.segments import Segments

Score = Literal["scaled", "unscaled", "additive"]


def scores(q_BHTK: Tensor, k_BHSK: Tensor, score: Score = "scaled", v_HK: Tensor | None = None) -> Tensor:
    """The scores (B, H, T, S) of every query and key.

    "scaled" is q·k / sqrt(d_k), "unscaled" is q·k, and "additive" is v·tanh(q + k) with one vector v for each head: a
    feed-forward network with one hidden layer, whose first matrices are the projections of queries and keys.
    """
    if score == "additive":
        assert v_HK is not None
        return torch.einsum("bhtsk,hk->bhts", torch.tanh(q_BHTK[:, :, :, None] + k_BHSK[:, :, None]), v_HK)
    product_BHTS = q_BHTK @ k_BHSK.transpose(-1, -2)
    return product_BHTS / math.sqrt(q_BHTK.shape[-1]) if score == "scaled" else product_BHTS


def variant_weights(
    q_NHK: Tensor,
    k_MHK: Tensor,
    q_segments: Segments,
    k_segments: Segments,
    *,
    causal: bool = False,
    score: Score = "scaled",
    v_HK: Tensor | None = None,
    neighbourhood: int | None = None,
) -> Tensor:
    """Attention weights (B, H, T, S), zero outside the segments.

    With a `neighbourhood` r, position t attends only to positions from t - r // 2 to t + r // 2; queries and keys then
    have the same segments.
    """
    q, k = q_segments.layout, k_segments.layout
    scores_BHTS = scores(q.pad(q_NHK).transpose(1, 2), k.pad(k_MHK).transpose(1, 2), score, v_HK)
    allowed_BHTS = k.real_BT[:, None, None, :] & q.real_BT[:, None, :, None]
    T, S = scores_BHTS.shape[-2:]
    distance_TS = torch.arange(S, device=q_NHK.device) - torch.arange(T, device=q_NHK.device)[:, None]
    if causal:
        allowed_BHTS = allowed_BHTS & (distance_TS <= 0)
    if neighbourhood is not None:
        allowed_BHTS = allowed_BHTS & (distance_TS.abs() <= neighbourhood // 2)
    lowest = torch.finfo(scores_BHTS.dtype).min
    weights_BHTS = scores_BHTS.masked_fill(~allowed_BHTS, lowest).softmax(dim=-1)
    return weights_BHTS.masked_fill(~allowed_BHTS, 0.0)


def attend_variant(
    q_NHK: Tensor,
    k_MHK: Tensor,
    v_MHK: Tensor,
    q_segments: Segments,
    k_segments: Segments,
    *,
    causal: bool = False,
    score: Score = "scaled",
    v_HK: Tensor | None = None,
    neighbourhood: int | None = None,
) -> Tensor:
    """The values (N, H, K) with the weights of `variant_weights`."""
    weights_BHTS = variant_weights(
        q_NHK, k_MHK, q_segments, k_segments, causal=causal, score=score, v_HK=v_HK, neighbourhood=neighbourhood
    )
    return q_segments.layout.unpad(torch.einsum("bhts,bshk->bthk", weights_BHTS, k_segments.layout.pad(v_MHK)))


def restricted_attention(q_TK: Tensor, k_TK: Tensor, v_TK: Tensor, neighbourhood: int) -> Tensor:
    """Restricted self-attention of one sequence and head without the products that its mask would remove."""
    half = neighbourhood // 2
    T, K = k_TK.shape
    # Window t is the rows t - half to t + half; it overlaps with its neighbours in memory, so nothing is copied.
    k_TRK, v_TRK = (
        torch.nn.functional.pad(x_TK, (0, 0, half, half)).as_strided((T, 2 * half + 1, K), (K, K, 1))
        for x_TK in (k_TK, v_TK)
    )
    position_TR = torch.arange(T, device=q_TK.device)[:, None] + torch.arange(-half, half + 1, device=q_TK.device)
    scores_T1R = (q_TK[:, None] @ k_TRK.transpose(1, 2)) / math.sqrt(K)
    outside_T1R = ((position_TR < 0) | (position_TR >= T))[:, None]
    return (scores_T1R.masked_fill(outside_T1R, -torch.inf).softmax(dim=-1) @ v_TRK)[:, 0]

"""Attention: the only operation that combines tokens with each other (section 3.2).

Every implementation takes the queries, keys and values of all segments of a batch, packed, and lets the queries of
segment b attend only to the keys of segment b. `reference` is the definition; `attend` computes the same faster.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.nn.segments import Segments


def reference(
    q_NHK: Tensor,
    k_MHK: Tensor,
    v_MHK: Tensor,
    q_segments: Segments,
    k_segments: Segments,
    causal: bool,
    score_bias_BHTS: Tensor | None = None,
    dropout: float = 0.0,
    cap: float | None = None,
) -> Tensor:
    """softmax(QK^T / sqrt(d_k) + bias) V within each segment, with dropout on the result of the softmax.

    With `causal`, position t attends to positions up to t; queries and keys then have the same segments. A query whose
    segment has no keys gets zeros. If there are fewer heads of keys and values than of queries, each serves a group
    of adjacent heads of queries. `score_bias_BHTS` can be broadcast to segments, heads, positions of queries and keys.
    With `cap`, scores are bounded before the bias is added (`soft_cap`).
    """
    weights_BHTS = attention_weights(q_NHK, k_MHK, q_segments, k_segments, causal, score_bias_BHTS, cap)
    v_BSHK = k_segments.layout.pad(repeat_heads(v_MHK, q_NHK.shape[1]))
    return q_segments.layout.unpad(torch.einsum("bhts,bshk->bthk", F.dropout(weights_BHTS, dropout), v_BSHK))


def attention_weights(
    q_NHK: Tensor,
    k_MHK: Tensor,
    q_segments: Segments,
    k_segments: Segments,
    causal: bool,
    score_bias_BHTS: Tensor | None = None,
    cap: float | None = None,
) -> Tensor:
    """softmax(QK^T / sqrt(d_k) + bias) as a padded (B, H, T, S) tensor, zero outside the segments."""
    k_MHK = repeat_heads(k_MHK, q_NHK.shape[1])
    scores_BHTS = torch.einsum(
        "bthk,bshk->bhts", q_segments.layout.pad(q_NHK), k_segments.layout.pad(k_MHK)
    ) / math.sqrt(q_NHK.shape[-1])
    scores_BHTS = soft_cap(scores_BHTS, cap)
    if score_bias_BHTS is not None:
        scores_BHTS = scores_BHTS + score_bias_BHTS
    allowed_BHTS = k_segments.layout.real_BT[:, None, None, :] & q_segments.layout.real_BT[:, None, :, None]
    if causal:
        allowed_BHTS = allowed_BHTS & torch.ones_like(scores_BHTS[0, 0], dtype=torch.bool).tril()
    weights_BHTS = scores_BHTS.masked_fill(~allowed_BHTS, -torch.inf).softmax(dim=-1)
    return weights_BHTS.masked_fill(~allowed_BHTS, 0.0)


def attend(
    q_NHK: Tensor,
    k_MHK: Tensor,
    v_MHK: Tensor,
    q_segments: Segments,
    k_segments: Segments,
    causal: bool,
    score_bias_BHTS: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`reference` by torch's attention on a padded grid, which is efficient if segments have similar lengths.

    On a CPU, bfloat16 is computed in float32: torch takes ten times as long for the gradient in bfloat16.
    """
    is_grouped = k_MHK.shape[1] != q_NHK.shape[1]
    if is_grouped and not q_NHK.is_cuda:  # where torch would take its slowest implementation
        k_MHK, v_MHK = (repeat_heads(x, q_NHK.shape[1]) for x in (k_MHK, v_MHK))
    q_layout, k_layout, dtype = q_segments.layout, k_segments.layout, q_NHK.dtype
    if dtype == torch.bfloat16 and q_NHK.device.type == "cpu":
        q_NHK, k_MHK, v_MHK = q_NHK.float(), k_MHK.float(), v_MHK.float()
    # Under the causal mask no token attends to the empty cells after its segment, so they need no mask.
    mask = None if causal or k_layout.full else k_layout.real_BT[:, None, None, :]
    if score_bias_BHTS is not None:
        if causal:
            mask = torch.ones_like(score_bias_BHTS[:1, :1], dtype=torch.bool).tril()
        mask = score_bias_BHTS if mask is None else score_bias_BHTS.masked_fill(~mask, -torch.inf)
        mask, causal = mask.to(q_NHK.dtype), False
    o_BHTK = F.scaled_dot_product_attention(
        q_layout.pad(q_NHK).transpose(1, 2),
        k_layout.pad(k_MHK).transpose(1, 2),
        k_layout.pad(v_MHK).transpose(1, 2),
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=causal,
        enable_gqa=is_grouped and q_NHK.is_cuda,
    )
    return q_layout.unpad(o_BHTK.transpose(1, 2)).to(dtype)


def soft_cap(x: Tensor, cap: float | None) -> Tensor:
    """Numbers bounded smoothly by a cap (Gemma 2): cap * tanh(x / cap); None leaves them as they are."""
    return x if cap is None else cap * (x / cap).tanh()


def repeat_heads(x_MGK: Tensor, num_heads: int) -> Tensor:
    """Each head of keys or values as often as heads of queries share it."""
    return x_MGK if x_MGK.shape[1] == num_heads else x_MGK.repeat_interleave(num_heads // x_MGK.shape[1], dim=1)

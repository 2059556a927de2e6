"""Attention: the only operation that combines tokens with each other (section 3.2).

`attend` is one function with several implementations ("engines"); `reference` is the definition. Every engine takes the
queries, keys and values of all segments of a batch, packed, and lets the queries of segment b attend only to the keys
of segment b.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from transduce.fast import kernels
from transduce.nn.kinds import MAX_PACKED_WIDTH
from transduce.nn.segments import Segments

_LONG_BACKENDS = [
    *(SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH),
]
"""For long segments of equal length, the fastest first: cuDNN's attention takes half the time of torch's."""
_SHORT, _NARROW = 512, 128
"""Longest segments and widest heads for which the kernel for short segments is used."""


class Inputs(NamedTuple):
    """The arguments of `attend`, with as many heads of keys and values as of queries."""

    q_NHK: Tensor
    k_MHK: Tensor
    v_MHK: Tensor
    q_segments: Segments
    k_segments: Segments
    causal: bool
    score_bias_BHTS: Tensor | None
    dropout: float


Engine = Callable[[Inputs], Tensor]


def attend(
    q_NHK: Tensor,
    k_MHK: Tensor,
    v_MHK: Tensor,
    q_segments: Segments,
    k_segments: Segments,
    causal: bool,
    engine: str = "auto",
    score_bias_BHTS: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(QK^T / sqrt(d_k) + bias) V within each segment, with dropout on the result of the softmax.

    With `causal`, position t attends to positions up to t; queries and keys then have the same segments. A query whose
    segment has no keys gets zeros. If there are fewer heads of keys and values than of queries, each serves a group
    of adjacent heads of queries. `score_bias_BHTS` can be broadcast to segments, heads, positions of queries and keys.
    """
    if engine == "auto":
        narrow = max(q_NHK.shape[-1], v_MHK.shape[-1]) <= MAX_PACKED_WIDTH
        can_pack = q_NHK.is_cuda and q_NHK.dtype != torch.float32 and narrow and score_bias_BHTS is None and not dropout
        engine = "packed" if can_pack else "padded"
    k_MHK, v_MHK = (_repeat_heads(x, q_NHK.shape[1]) for x in (k_MHK, v_MHK))
    return ENGINES[engine](Inputs(q_NHK, k_MHK, v_MHK, q_segments, k_segments, causal, score_bias_BHTS, dropout))


def attention_weights(
    q_NHK: Tensor,
    k_MHK: Tensor,
    q_segments: Segments,
    k_segments: Segments,
    causal: bool,
    score_bias_BHTS: Tensor | None = None,
) -> Tensor:
    """softmax(QK^T / sqrt(d_k) + bias) as a padded (B, H, T, S) tensor, zero outside the segments."""
    k_MHK = _repeat_heads(k_MHK, q_NHK.shape[1])
    scores_BHTS = torch.einsum(
        "bthk,bshk->bhts", q_segments.layout.pad(q_NHK), k_segments.layout.pad(k_MHK)
    ) / math.sqrt(q_NHK.shape[-1])
    if score_bias_BHTS is not None:
        scores_BHTS = scores_BHTS + score_bias_BHTS
    allowed_BHTS = k_segments.layout.real_BT[:, None, None, :] & q_segments.layout.real_BT[:, None, :, None]
    if causal:
        allowed_BHTS = allowed_BHTS & torch.ones_like(scores_BHTS[0, 0], dtype=torch.bool).tril()
    weights_BHTS = scores_BHTS.masked_fill(~allowed_BHTS, -torch.inf).softmax(dim=-1)
    return weights_BHTS.masked_fill(~allowed_BHTS, 0.0)


def _repeat_heads(x_MGK: Tensor, num_heads: int) -> Tensor:
    return x_MGK if x_MGK.shape[1] == num_heads else x_MGK.repeat_interleave(num_heads // x_MGK.shape[1], dim=1)


def _reference(x: Inputs) -> Tensor:
    """The definition, written out; tests compare the other engines with it."""
    q, k, v, q_segments, k_segments, causal, score_bias, dropout = x
    weights_BHTS = F.dropout(attention_weights(q, k, q_segments, k_segments, causal, score_bias), dropout)
    return q_segments.layout.unpad(torch.einsum("bhts,bshk->bthk", weights_BHTS, k_segments.layout.pad(v)))


def _padded(x: Inputs) -> Tensor:
    """torch's scaled dot-product attention on a padded grid: efficient if segments have similar lengths.

    On a CPU, bfloat16 is computed in float32: torch takes ten times as long for the gradient in bfloat16.
    """
    q, k, v, q_segments, k_segments, causal, score_bias, dropout = x
    q_layout, k_layout, dtype = q_segments.layout, k_segments.layout, q.dtype
    if dtype == torch.bfloat16 and q.device.type == "cpu":
        q, k, v = q.float(), k.float(), v.float()
    # Under the causal mask no token attends to the empty cells after its segment, so they need no mask.
    mask = None if causal or k_layout.full else k_layout.real_BT[:, None, None, :]
    if score_bias is not None:
        if causal:
            mask = torch.ones_like(score_bias[:1, :1], dtype=torch.bool).tril()
        mask = score_bias if mask is None else score_bias.masked_fill(~mask, -torch.inf)
        mask, causal = mask.to(q.dtype), False
    o_BHTK = F.scaled_dot_product_attention(
        q_layout.pad(q).transpose(1, 2),
        k_layout.pad(k).transpose(1, 2),
        k_layout.pad(v).transpose(1, 2),
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=causal,
    )
    return q_layout.unpad(o_BHTK.transpose(1, 2)).to(dtype)


def _packed(x: Inputs) -> Tensor:
    """Packed streams without padding, with a kernel for short segments (CUDA, half precision)."""
    q, k, v, q_segments, k_segments, causal, score_bias, dropout = x
    assert score_bias is None, "the engine `padded` adds biases to scores"
    assert dropout == 0, "the engine `padded` has dropout"
    length, width = max(q_segments.longest, k_segments.longest), max(q.shape[-1], v.shape[-1])
    if q_segments.layout.full and k_segments.layout.full and length > _SHORT:
        with sdpa_kernel(_LONG_BACKENDS, set_priority=True):
            return _padded(x)
    if not kernels.fit(q) or length > _SHORT or width > _NARROW:
        return _flash(q, k, v, q_segments, k_segments, causal)
    from transduce.fast.kernels.segment_attention import SegmentAttention

    return SegmentAttention.apply(q, k, v, q_segments, k_segments, causal)  # type: ignore[no-untyped-call]


def _flash(q: Tensor, k: Tensor, v: Tensor, q_segments: Segments, k_segments: Segments, causal: bool) -> Tensor:
    """torch's variable-length flash attention, which is faster for long segments."""
    from torch.nn.attention.varlen import varlen_attn

    d_k, d_v = q.shape[-1], v.shape[-1]
    # The kernel needs one head width, a multiple of 8; zeros appended to q and k change no product.
    width = -(-max(d_k, d_v) // 8) * 8
    q, k, v = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    o_NHK = varlen_attn(
        q,
        k,
        v,
        q_segments.offsets_B1,
        k_segments.offsets_B1,
        q_segments.longest,
        k_segments.longest,
        scale=1 / math.sqrt(d_k),
        window_size=(-1, 0) if causal else (-1, -1),
    )
    assert isinstance(o_NHK, Tensor)
    return o_NHK[..., :d_v]


ENGINES: dict[str, Engine] = {"reference": _reference, "padded": _padded, "packed": _packed}

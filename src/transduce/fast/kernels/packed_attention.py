"""Attention of packed streams without padding, for CUDA and half precision.

Short segments are computed by a kernel of ours, long ones by cuDNN's or torch's flash attention.
"""

import math

from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from transduce.fast.kernels import HAS_TRITON
from transduce.nn.attention import attend, repeat_heads
from transduce.nn.kinds import MAX_PACKED_WIDTH
from transduce.nn.segments import Segments

if HAS_TRITON:
    from transduce.fast.kernels.segment_attention import SegmentAttention

_LONG_BACKENDS = [
    *(SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
]
"""For long segments of equal length, the fastest first: cuDNN's attention takes half the time of torch's."""
_SHORT, _NARROW = 512, 128
"""Longest segments and widest heads for which the kernel for short segments is used."""


def attend_packed(
    q_NHK: Tensor,
    k_MHK: Tensor,
    v_MHK: Tensor,
    q_segments: Segments,
    k_segments: Segments,
    causal: bool,
    score_bias_BHTS: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """See `nn.attention.reference`; wide heads, biases of scores and dropout need the padded grid."""
    length = max(q_segments.longest, k_segments.longest)
    width = max(q_NHK.shape[-1], v_MHK.shape[-1])
    if width > MAX_PACKED_WIDTH or score_bias_BHTS is not None or dropout:
        return attend(q_NHK, k_MHK, v_MHK, q_segments, k_segments, causal, score_bias_BHTS, dropout)
    if length > _SHORT and q_segments.layout.full and k_segments.layout.full:
        with sdpa_kernel(_LONG_BACKENDS, set_priority=True):
            return attend(q_NHK, k_MHK, v_MHK, q_segments, k_segments, causal)
    if not HAS_TRITON or length > _SHORT or width > _NARROW:
        k_MHK, v_MHK = (repeat_heads(x, q_NHK.shape[1]) for x in (k_MHK, v_MHK))
        return _flash(q_NHK, k_MHK, v_MHK, q_segments, k_segments, causal)
    return SegmentAttention.apply(q_NHK, k_MHK, v_MHK, q_segments, k_segments, causal)


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

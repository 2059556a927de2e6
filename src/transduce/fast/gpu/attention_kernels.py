"""Attention of one new token per row over a KV cache that is never copied, for CUDA.

A slot has one sentence and W rows for its hypotheses. Row r stores the keys and values of its token at position t in
the cache at (r, t). When a hypothesis continues in another row, only a table changes: position p of hypothesis r is
stored in row `ancestor[r, p]` of the slot.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.common import early, wait_for_inputs

_BLOCK, _SHORT = 32, 64
"""Positions that a program loads at once; half as many if there are few positions and many programs."""
_FEW_PROGRAMS = 2048
"""The number up to which a program of self-attention has two warps, on an H200."""


@triton.jit
def _add_tile(q, k, v, maximum, total, o, inside, scale):
    """Add a tile of keys and values to a running softmax: its maximum score, its denominator, its weighted values."""
    s = tl.where(inside, tl.sum(k * q[None, :], 1) * scale, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(s, 0))
    p, rescale = tl.exp(s - new_maximum), tl.exp(maximum - new_maximum)
    return new_maximum, total * rescale + tl.sum(p, 0), o * rescale + tl.sum(p[:, None] * v, 0)


@triton.jit
def _attend_self(
    q_RHK, k_RHK, v_RHK, cache, ancestor_RP, position_R, o_RHK, positions, scale, q_stride, k_stride, v_stride,
    W: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr,
    D_V: tl.constexpr, D_V2: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait_for_inputs(EARLY)
    row, head = tl.program_id(0), tl.program_id(1)
    kv_head = head // GROUP  # each head of keys and values serves a group of heads of queries
    first_row = row // W * W
    t = tl.load(position_R + row)
    column_k, column_v = tl.arange(0, D_K2), tl.arange(0, D_V2)
    in_k, in_v = column_k < D_K, column_v < D_V
    cached_k = cache + kv_head * D_K + column_k
    cached_v = cache + HEADS // GROUP * D_K + kv_head * D_V + column_v
    q = tl.load(q_RHK + row * q_stride + head * D_K + column_k, mask=in_k, other=0.0).to(tl.float32)
    k = tl.load(k_RHK + row * k_stride + kv_head * D_K + column_k, mask=in_k, other=0.0)
    v = tl.load(v_RHK + row * v_stride + kv_head * D_V + column_v, mask=in_v, other=0.0)
    offset = (row.to(tl.int64) * positions + t) * WIDTH
    if head % GROUP == 0:
        tl.store(cached_k + offset, k, mask=in_k)
        tl.store(cached_v + offset, v, mask=in_v)

    # The running softmax starts with the new token; the earlier ones follow.
    maximum, total, o = tl.sum(q * k.to(tl.float32), 0) * scale, 1.0, v.to(tl.float32)
    for start in range(0, t, BLOCK):
        position = start + tl.arange(0, BLOCK)
        inside = position < t
        ancestor = tl.load(ancestor_RP + row * positions + position, mask=inside, other=0).to(tl.int64)
        offsets = (((first_row + ancestor) * positions + position) * WIDTH)[:, None]
        keys = tl.load(cached_k[None, :] + offsets, mask=inside[:, None] & in_k[None, :], other=0.0).to(tl.float32)
        values = tl.load(cached_v[None, :] + offsets, mask=inside[:, None] & in_v[None, :], other=0.0).to(tl.float32)
        maximum, total, o = _add_tile(q, keys, values, maximum, total, o, inside, scale)
    tl.store(o_RHK + (row * HEADS + head) * D_V + column_v, (o / total).to(o_RHK.dtype.element_ty), mask=in_v)


@triton.jit
def _attend_cross(
    q_RHK, cache, length_S, o_RHK, source_capacity, scale, q_stride,
    W: tl.constexpr, W2: tl.constexpr, HEADS: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr,
    D_V: tl.constexpr, D_V2: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait_for_inputs(EARLY)
    slot, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(length_S + slot)
    column_k, column_v = tl.arange(0, D_K2), tl.arange(0, D_V2)
    in_k, in_v, row = column_k < D_K, column_v < D_V, tl.arange(0, W2)
    rows = slot * W + row
    q_offset = rows[:, None] * q_stride + head * D_K + column_k[None, :]
    q = tl.load(q_RHK + q_offset, mask=(row < W)[:, None] & in_k[None, :], other=0.0)
    maximum = tl.full((W2,), float("-inf"), tl.float32)
    total = tl.zeros((W2,), tl.float32)
    o = tl.zeros((W2, D_V2), tl.float32)
    for start in range(0, length, BLOCK):  # the rows of the slot share one load of its source
        position = start + tl.arange(0, BLOCK)
        inside = (position < length)[:, None]
        offsets = ((slot.to(tl.int64) * source_capacity + position) * WIDTH)[:, None]
        k = tl.load(cache + offsets + (head * D_K + column_k)[None, :], mask=inside & in_k[None, :], other=0.0)
        v = tl.load(
            cache + offsets + (HEADS * D_K + head * D_V + column_v)[None, :], mask=inside & in_v[None, :], other=0.0
        )
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where((position < length)[None, :], s, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(s, 1))
        p, rescale = tl.exp(s - new_maximum[:, None]), tl.exp(maximum - new_maximum)
        total = total * rescale + tl.sum(p, 1)
        o = o * rescale[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        maximum = new_maximum
    denominator = tl.where(total > 0, total, 1.0)  # an empty slot has no source
    o_offset = rows[:, None] * HEADS * D_V + head * D_V + column_v[None, :]
    tl.store(
        o_RHK + o_offset, (o / denominator[:, None]).to(o_RHK.dtype.element_ty), mask=(row < W)[:, None] & in_v[None, :]
    )


def attend_self(
    q_RHK: Tensor, k_RHK: Tensor, v_RHK: Tensor, cache: Tensor, ancestor_RP: Tensor, position_R: Tensor, beam: int
) -> Tensor:
    """Store the new keys and values; each token attends to itself and to earlier ones of its hypothesis (R, H, K)."""
    (R, H, _), positions = q_RHK.shape, ancestor_RP.shape[1]
    o_RHK = torch.empty(R, H, v_RHK.shape[2], dtype=q_RHK.dtype, device=q_RHK.device)
    strides = (x.stride(0) for x in (q_RHK, k_RHK, v_RHK))
    is_few = R * H <= _FEW_PROGRAMS
    block = _BLOCK // 2 if positions <= _SHORT and not is_few else _BLOCK
    _attend_self[(R, H)](
        q_RHK, k_RHK, v_RHK, cache, ancestor_RP, position_R, o_RHK, positions, q_RHK.shape[2] ** -0.5, *strides,
        W=beam, GROUP=H // k_RHK.shape[1], BLOCK=block, num_warps=2 if is_few else 1,
        **_sizes(q_RHK, v_RHK.shape[2], cache),
    )  # fmt: skip
    return o_RHK


def attend_cross(q_RHK: Tensor, d_v: int, cache: Tensor, length_S: Tensor, source_capacity: int) -> Tensor:
    """Each row attends to the source of its slot, `source_capacity` rows of the cache per slot (R, H, K)."""
    R, H, _ = q_RHK.shape
    S = len(length_S)
    o_RHK = torch.empty(R, H, d_v, dtype=q_RHK.dtype, device=q_RHK.device)
    _attend_cross[(S, H)](
        q_RHK, cache, length_S, o_RHK, source_capacity, q_RHK.shape[2] ** -0.5, q_RHK.stride(0),
        W=R // S, W2=max(16, triton.next_power_of_2(R // S)), BLOCK=_BLOCK, num_warps=2,
        **_sizes(q_RHK, d_v, cache),
    )  # fmt: skip
    return o_RHK


def _sizes(q_RHK: Tensor, d_v: int, cache: Tensor) -> dict[str, Any]:
    _, H, d_k = q_RHK.shape
    d_k2, d_v2 = (max(16, triton.next_power_of_2(width)) for width in (d_k, d_v))
    sizes = {"HEADS": H, "D_K": d_k, "D_K2": d_k2, "D_V": d_v, "D_V2": d_v2, "WIDTH": cache.shape[1]}
    return sizes | early(q_RHK.device)

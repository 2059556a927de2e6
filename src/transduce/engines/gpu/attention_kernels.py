"""Attention of one new token in each row over keys and values that never move, for CUDA.

A slot holds one sentence and W rows for its hypotheses. Row r writes the keys and values of its token at place t into
its own line of the cache, and there they stay. When search lets a hypothesis go on in another row, only a small table
changes: `ancestor[r, p]` says in which row of the slot the token lies that hypothesis r has at place p.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_SELF_BLOCK, _CROSS_BLOCK = 16, 32
"""Places that a program holds at once."""


@triton.jit
def _add_tile(q, k, v, top, total, o, inside, scale):
    """One tile of keys and values into a running softmax: its largest score, its sum, its weighted values."""
    s = tl.where(inside, tl.sum(k * q[None, :], 1) * scale, float("-inf"))
    higher = tl.maximum(top, tl.max(s, 0))
    p, shrink = tl.exp(s - higher), tl.exp(top - higher)
    return higher, total * shrink + tl.sum(p, 0), o * shrink + tl.sum(p[:, None] * v, 0)


@triton.jit
def _attend_self(
    q_RHK, k_RHK, v_RHK, cache, ancestor_RP, position_R, o_RHK, room, scale, q_stride, k_stride, v_stride,
    W: tl.constexpr, HEADS: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr, D_V: tl.constexpr, D_V2: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    first = row // W * W  # of the slot's rows
    t = tl.load(position_R + row)
    width, across_k, across_v = HEADS * (D_K + D_V), tl.arange(0, D_K2), tl.arange(0, D_V2)
    in_k, in_v = across_k < D_K, across_v < D_V
    cached_k, cached_v = cache + head * D_K + across_k, cache + HEADS * D_K + head * D_V + across_v
    q = tl.load(q_RHK + row * q_stride + head * D_K + across_k, mask=in_k, other=0.0).to(tl.float32)
    k = tl.load(k_RHK + row * k_stride + head * D_K + across_k, mask=in_k, other=0.0)
    v = tl.load(v_RHK + row * v_stride + head * D_V + across_v, mask=in_v, other=0.0)
    line = (row.to(tl.int64) * room + t) * width
    tl.store(cached_k + line, k, mask=in_k)
    tl.store(cached_v + line, v, mask=in_v)

    # The new token itself comes first, then all before it.
    top, total, o = tl.sum(q * k.to(tl.float32), 0) * scale, 1.0, v.to(tl.float32)
    for start in range(0, t, BLOCK):
        place = start + tl.arange(0, BLOCK)
        inside = place < t
        who = tl.load(ancestor_RP + row * room + place, mask=inside, other=0).to(tl.int64)
        lines = (((first + who) * room + place) * width)[:, None]
        keys = tl.load(cached_k[None, :] + lines, mask=inside[:, None] & in_k[None, :], other=0.0).to(tl.float32)
        values = tl.load(cached_v[None, :] + lines, mask=inside[:, None] & in_v[None, :], other=0.0).to(tl.float32)
        top, total, o = _add_tile(q, keys, values, top, total, o, inside, scale)
    tl.store(o_RHK + (row * HEADS + head) * D_V + across_v, (o / total).to(o_RHK.dtype.element_ty), mask=in_v)


@triton.jit
def _attend_cross(
    q_RHK, cache, length_S, o_RHK, room, scale, q_stride,
    W: tl.constexpr, W2: tl.constexpr, HEADS: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr,
    D_V: tl.constexpr, D_V2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    slot, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(length_S + slot)
    width, across_k, across_v = HEADS * (D_K + D_V), tl.arange(0, D_K2), tl.arange(0, D_V2)
    in_k, in_v, row = across_k < D_K, across_v < D_V, tl.arange(0, W2)
    rows = slot * W + row
    place_q = rows[:, None] * q_stride + head * D_K + across_k[None, :]
    q = tl.load(q_RHK + place_q, mask=(row < W)[:, None] & in_k[None, :], other=0.0)
    top = tl.full((W2,), float("-inf"), tl.float32)
    total = tl.zeros((W2,), tl.float32)
    o = tl.zeros((W2, D_V2), tl.float32)
    for start in range(0, length, BLOCK):  # all rows of the slot share one load of its source
        place = start + tl.arange(0, BLOCK)
        inside = (place < length)[:, None]
        lines = ((slot.to(tl.int64) * room + place) * width)[:, None]
        k = tl.load(cache + lines + (head * D_K + across_k)[None, :], mask=inside & in_k[None, :], other=0.0)
        v = tl.load(
            cache + lines + (HEADS * D_K + head * D_V + across_v)[None, :], mask=inside & in_v[None, :], other=0.0
        )
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where((place < length)[None, :], s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        p, shrink = tl.exp(s - higher[:, None]), tl.exp(top - higher)
        total = total * shrink + tl.sum(p, 1)
        o = o * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        top = higher
    some = tl.where(total > 0, total, 1.0)  # an empty slot has no source
    place_o = rows[:, None] * HEADS * D_V + head * D_V + across_v[None, :]
    tl.store(o_RHK + place_o, (o / some[:, None]).to(o_RHK.dtype.element_ty), mask=(row < W)[:, None] & in_v[None, :])


def attend_self(
    q_RHK: Tensor,
    k_RHK: Tensor,
    v_RHK: Tensor,
    cache: Tensor,
    ancestor_RP: Tensor,
    position_R: Tensor,
    beam: int,
) -> Tensor:
    """Remember the new tokens at their rows' positions; each looks at itself and its ancestors (R, H, K)."""
    (R, H, _), room = q_RHK.shape, ancestor_RP.shape[1]
    o_RHK = torch.empty(R, H, v_RHK.shape[2], dtype=q_RHK.dtype, device=q_RHK.device)
    strides = (x.stride(0) for x in (q_RHK, k_RHK, v_RHK))
    _attend_self[(R, H)](
        q_RHK, k_RHK, v_RHK, cache, ancestor_RP, position_R, o_RHK, room, q_RHK.shape[2] ** -0.5, *strides,
        W=beam, BLOCK=_SELF_BLOCK, **_sizes(q_RHK, v_RHK.shape[2]), num_warps=1,
    )  # fmt: skip
    return o_RHK


def attend_cross(q_RHK: Tensor, d_v: int, cache: Tensor, length_S: Tensor, room: int) -> Tensor:
    """Each row looks at the source of its slot, `room` lines of the cache apart (R, H, K)."""
    R, H, _ = q_RHK.shape
    S = len(length_S)
    o_RHK = torch.empty(R, H, d_v, dtype=q_RHK.dtype, device=q_RHK.device)
    _attend_cross[(S, H)](
        q_RHK, cache, length_S, o_RHK, room, q_RHK.shape[2] ** -0.5, q_RHK.stride(0),
        W=R // S, W2=max(16, triton.next_power_of_2(R // S)), BLOCK=_CROSS_BLOCK, **_sizes(q_RHK, d_v), num_warps=2,
    )  # fmt: skip
    return o_RHK


def _sizes(q_RHK: Tensor, d_v: int) -> dict[str, Any]:
    _, H, d_k = q_RHK.shape
    d_k2, d_v2 = (max(16, triton.next_power_of_2(width)) for width in (d_k, d_v))
    return {"HEADS": H, "D_K": d_k, "D_K2": d_k2, "D_V": d_v, "D_V2": d_v2}

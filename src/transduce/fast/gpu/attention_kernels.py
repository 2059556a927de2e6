"""Attention of one new token per row over a KV cache that is never copied, for CUDA.

A slot has one sentence and W rows for its hypotheses. Row r stores the keys and values of its token at position t in
the cache at (r, t). When a hypothesis continues in another row, only a table changes: position p of hypothesis r is
stored in row `ancestor[r, p]` of the slot. Programs begin to load what earlier steps have stored while the kernels
before them still run.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.common import LOWEST, early, start_next, wait_for_inputs

_FEW_PROGRAMS, _MANY_POSITIONS = 2560, 128
"""Self-attention loads more positions at once with this many programs at most and with more positions (on an H200)."""


@triton.jit
def _stored_tile(
    keys, values, ancestor_P, row, start, t, positions, in_k, in_v,
    W: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Keys and values of some positions of a hypothesis, and which of them exist."""
    position = start + tl.arange(0, BLOCK)
    inside, stored_row = position < t, row
    if W > 1:  # read even where no key is, so that it does not wait for t
        stored_row = row // W * W + tl.load(ancestor_P + position, mask=position < positions, other=0)
    offset = ((stored_row.to(tl.int64) * positions + position) * WIDTH)[:, None]
    k = tl.load(keys[None, :] + offset, mask=inside[:, None] & in_k[None, :], other=0.0)
    v = tl.load(values[None, :] + offset, mask=inside[:, None] & in_v[None, :], other=0.0)
    return k, v, inside


@triton.jit
def _add_keys(q, k, v, inside, scale, maximum, total, o):
    """Add keys and values to the running softmax of one query: its maximum score, denominator and weighted values."""
    s = tl.where(inside, tl.sum(k.to(tl.float32) * q[None, :], 1) * scale, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(s, 0))
    p, rescale = tl.exp(s - new_maximum), tl.exp(maximum - new_maximum)
    o = o * rescale + tl.sum(p[:, None] * v.to(tl.float32), 0)
    return new_maximum, total * rescale + tl.sum(p, 0), o


@triton.jit
def _attend_self(
    q_RHK, k_RHK, v_RHK, cache, ancestor_RP, position_R, o_RHK, positions, scale, q_stride, k_stride, v_stride,
    W: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr,
    D_V: tl.constexpr, D_V2: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    kv_head = head // GROUP  # each head of keys and values serves a group of heads of queries
    column_k, column_v = tl.arange(0, D_K2), tl.arange(0, D_V2)
    in_k, in_v = column_k < D_K, column_v < D_V
    keys, values = cache + kv_head * D_K + column_k, cache + HEADS // GROUP * D_K + kv_head * D_V + column_v
    ancestor_P = ancestor_RP + row * positions
    t = tl.load(position_R + row)
    tile_k, tile_v, inside = _stored_tile(keys, values, ancestor_P, row, 0, t, positions, in_k, in_v, W, WIDTH, BLOCK)
    start_next(EARLY)
    wait_for_inputs(EARLY)
    q = tl.load(q_RHK + row * q_stride + head * D_K + column_k, mask=in_k, other=0.0).to(tl.float32)
    k = tl.load(k_RHK + row * k_stride + kv_head * D_K + column_k, mask=in_k, other=0.0)
    v = tl.load(v_RHK + row * v_stride + kv_head * D_V + column_v, mask=in_v, other=0.0)
    offset = (row.to(tl.int64) * positions + t) * WIDTH
    if head % GROUP == 0:
        tl.store(keys + offset, k, mask=in_k)
        tl.store(values + offset, v, mask=in_v)

    # The running softmax starts with the new token; the earlier ones follow.
    maximum, total, o = tl.sum(q * k.to(tl.float32), 0) * scale, 1.0, v.to(tl.float32)
    maximum, total, o = _add_keys(q, tile_k, tile_v, inside, scale, maximum, total, o)
    for start in range(BLOCK, t, BLOCK):
        tile_k, tile_v, inside = _stored_tile(
            keys, values, ancestor_P, row, start, t, positions, in_k, in_v, W, WIDTH, BLOCK
        )
        maximum, total, o = _add_keys(q, tile_k, tile_v, inside, scale, maximum, total, o)
    tl.store(o_RHK + (row * HEADS + head) * D_V + column_v, (o / total).to(o_RHK.dtype.element_ty), mask=in_v)


@triton.jit
def _source_tile(keys, values, start, length, in_k, in_v, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Keys and values of some tokens of a source, and which of them exist."""
    position = start + tl.arange(0, BLOCK)
    inside, offset = position < length, (position * WIDTH)[:, None]
    k = tl.load(keys[None, :] + offset, mask=inside[:, None] & in_k[None, :], other=0.0)
    v = tl.load(values[None, :] + offset, mask=inside[:, None] & in_v[None, :], other=0.0)
    return k, v, inside


@triton.jit
def _add_tile(q, k, v, inside, scale, maximum, total, o):
    """`_add_keys` for several queries."""
    s = tl.where(inside[None, :], tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(s, 1))
    p, rescale = tl.exp(s - new_maximum[:, None]), tl.exp(maximum - new_maximum)
    o = o * rescale[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return new_maximum, total * rescale + tl.sum(p, 1), o


@triton.jit
def _attend_cross(
    q_RHK, cache, length_S, o_RHK, source_capacity, scale, q_stride,
    W: tl.constexpr, W2: tl.constexpr, HEADS: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr,
    D_V: tl.constexpr, D_V2: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    slot, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(length_S + slot)
    column_k, column_v, row = tl.arange(0, D_K2), tl.arange(0, D_V2), tl.arange(0, W2)
    in_k, in_v, in_slot = column_k < D_K, column_v < D_V, (row < W)[:, None]
    source = cache + slot.to(tl.int64) * source_capacity * WIDTH
    keys, values = source + head * D_K + column_k, source + HEADS * D_K + head * D_V + column_v
    rows = (slot * W + row)[:, None]
    k, v, inside = _source_tile(keys, values, 0, length, in_k, in_v, WIDTH, BLOCK)
    start_next(EARLY)
    wait_for_inputs(EARLY)
    q = tl.load(q_RHK + rows * q_stride + head * D_K + column_k[None, :], mask=in_slot & in_k[None, :], other=0.0)
    maximum, total = tl.full((W2,), LOWEST, tl.float32), tl.zeros((W2,), tl.float32)
    o = tl.zeros((W2, D_V2), tl.float32)
    maximum, total, o = _add_tile(q, k, v, inside, scale, maximum, total, o)
    for start in range(BLOCK, length, BLOCK):  # the rows of the slot share one load of its source
        k, v, inside = _source_tile(keys, values, start, length, in_k, in_v, WIDTH, BLOCK)
        maximum, total, o = _add_tile(q, k, v, inside, scale, maximum, total, o)
    denominator = tl.where(total > 0, total, 1.0)  # an empty slot has no source
    o_offset = (rows * HEADS + head) * D_V + column_v[None, :]
    tl.store(o_RHK + o_offset, (o / denominator[:, None]).to(o_RHK.dtype.element_ty), mask=in_slot & in_v[None, :])


@triton.jit
def _store_rows(x_ND, row_N, cache, D, stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ND + tl.program_id(0).to(tl.int64) * stride + column, mask=column < D)
    tl.store(cache + tl.load(row_N + tl.program_id(0)).to(tl.int64) * WIDTH + column, x, mask=column < D)


def store_rows(x_ND: Tensor, row_N: Tensor, cache: Tensor) -> None:
    """Copy vectors to the beginnings of these rows of a cache."""
    (N, D), block = x_ND.shape, min(1024, triton.next_power_of_2(cache.shape[1]))
    _store_rows[(N, triton.cdiv(D, block))](x_ND, row_N, cache, D, x_ND.stride(0), WIDTH=cache.shape[1], BLOCK=block)


def attend_self(
    q_RHK: Tensor, k_RHK: Tensor, v_RHK: Tensor, cache: Tensor, ancestor_RP: Tensor, position_R: Tensor, beam: int
) -> Tensor:
    """Store the new keys and values; each token attends to itself and to earlier ones of its hypothesis (R, H, K)."""
    (R, H, _), positions = q_RHK.shape, ancestor_RP.shape[1]
    o_RHK = torch.empty(R, H, v_RHK.shape[2], dtype=q_RHK.dtype, device=q_RHK.device)
    strides = (x.stride(0) for x in (q_RHK, k_RHK, v_RHK))
    if R * H > _FEW_PROGRAMS:
        block, warps = 16, 1
    else:
        block, warps = (32, 1) if positions <= _MANY_POSITIONS else (128, 4)
    _attend_self[(R, H)](
        q_RHK, k_RHK, v_RHK, cache, ancestor_RP, position_R, o_RHK, positions, q_RHK.shape[2] ** -0.5, *strides,
        W=beam, GROUP=H // k_RHK.shape[1], BLOCK=block, num_warps=warps, num_stages=1,
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
        W=R // S, W2=max(16, triton.next_power_of_2(R // S)), BLOCK=32, num_warps=1, num_stages=1,
        **_sizes(q_RHK, d_v, cache),
    )  # fmt: skip
    return o_RHK


def _sizes(q_RHK: Tensor, d_v: int, cache: Tensor) -> dict[str, Any]:
    _, H, d_k = q_RHK.shape
    d_k2, d_v2 = (max(16, triton.next_power_of_2(width)) for width in (d_k, d_v))
    sizes = {"HEADS": H, "D_K": d_k, "D_K2": d_k2, "D_V": d_v, "D_V2": d_v2, "WIDTH": cache.shape[1]}
    return sizes | early(q_RHK.device)

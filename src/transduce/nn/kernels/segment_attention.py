"""Attention over short segments, for CUDA.

Sentences are short: tiles as wide as those of general kernels would be mostly empty. Here one program owns a group of
neighbouring segments that fill one small tile together, for one head. It loads the tile once, computes all of their
scores in one product and lets each query see the keys of its own segment alone. A segment too long for a tile is a
group of its own, walked over tile by tile. Nothing is shared between programs, so nothing needs atomic additions.

Forward is the softmax of section 3.2.1, taken over one tile of keys after another: `top` is the largest score seen so
far, `total` the sum of exp(score - top), and what was summed under an older `top` is scaled down when a larger one
comes.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.nn.heads import empty_adjacent
from transduce.nn.segments import TILE, Segments

_FORWARD_REGISTERS, _BACKWARD_REGISTERS = 96, 168
"""Of a thread, for heads of up to 64: fewer let more programs run side by side, too few spill over into memory."""


@triton.jit
def _place(x, start, end, head, stride, TILE: tl.constexpr, WIDTH: tl.constexpr, WIDTH_2: tl.constexpr):
    """Where rows start:start+TILE of one head lie, and which of them are before `end`."""
    rows, columns = start + tl.arange(0, TILE), tl.arange(0, WIDTH_2)
    place = x + rows[:, None].to(tl.int64) * stride + head * WIDTH + columns[None, :]
    return place, (rows < end)[:, None] & (columns < WIDTH)[None, :]


@triton.jit
def _load(x, start, end, head, stride, TILE: tl.constexpr, WIDTH: tl.constexpr, WIDTH_2: tl.constexpr):
    """A tile; zeros at and behind `end`."""
    place, inside = _place(x, start, end, head, stride, TILE, WIDTH, WIDTH_2)
    return tl.load(place, mask=inside, other=0.0)


@triton.jit
def _store(x, tile, start, end, head, stride, TILE: tl.constexpr, WIDTH: tl.constexpr, WIDTH_2: tl.constexpr):
    """Write a tile's rows before `end`."""
    place, inside = _place(x, start, end, head, stride, TILE, WIDTH, WIDTH_2)
    tl.store(place, tile.to(x.dtype.element_ty), mask=inside)


@triton.jit
def _scores(q, k, q_segment_N, k_segment_M, row, q_end, column, k_end, scale, CAUSAL: tl.constexpr, TILE: tl.constexpr):
    """QK^T / sqrt(d_k) of a tile, -inf where a query must not look."""
    rows, columns = row + tl.arange(0, TILE), column + tl.arange(0, TILE)
    q_segments = tl.load(q_segment_N + rows, mask=rows < q_end, other=-1)
    k_segments = tl.load(k_segment_M + columns, mask=columns < k_end, other=-2)
    allowed = q_segments[:, None] == k_segments[None, :]
    if CAUSAL:
        allowed = allowed & (columns[None, :] <= rows[:, None])
    return tl.where(allowed, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))


@triton.jit
def _owned(groups, q_offsets, k_offsets):
    """The queries and keys of this program's group."""
    group = tl.program_id(1)
    first, last = tl.load(groups + group), tl.load(groups + group + 1)
    q_start, q_end = tl.load(q_offsets + first), tl.load(q_offsets + last)
    k_start, k_end = tl.load(k_offsets + first), tl.load(k_offsets + last)
    return q_start, q_end, k_start, k_end


@triton.jit
def _attention_forward(
    q_NHK, k_MHK, v_MHK, o_NHK, log_total_HN, groups, q_offsets, k_offsets, q_segment_N, k_segment_M, tokens, scale,
    q_stride, k_stride, v_stride,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr, D_V: tl.constexpr, D_V2: tl.constexpr,
    HEADS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    q_start, q_end, k_start, k_end = _owned(groups, q_offsets, k_offsets)
    for row in range(q_start, q_end, TILE):
        q = _load(q_NHK, row, q_end, head, q_stride, TILE, D_K, D_K2)
        top = tl.full((TILE,), float("-inf"), tl.float32)
        total = tl.zeros((TILE,), tl.float32)
        o = tl.zeros((TILE, D_V2), tl.float32)
        for column in range(k_start, min(k_end, row + TILE) if CAUSAL else k_end, TILE):
            k = _load(k_MHK, column, k_end, head, k_stride, TILE, D_K, D_K2)
            v = _load(v_MHK, column, k_end, head, v_stride, TILE, D_V, D_V2)
            s = _scores(q, k, q_segment_N, k_segment_M, row, q_end, column, k_end, scale, CAUSAL, TILE)
            higher = tl.maximum(top, tl.max(s, 1))
            settled = tl.where(higher == float("-inf"), 0.0, higher)  # a row may have seen nothing yet
            p = tl.exp(s - settled[:, None])
            shrink = tl.exp(top - settled)
            total = total * shrink + tl.sum(p, 1)
            o = o * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
            top = higher
        some = tl.where(total > 0, total, 1.0)  # without a key the output is zero
        _store(o_NHK, o / some[:, None], row, q_end, head, HEADS * D_V, TILE, D_V, D_V2)
        rows = row + tl.arange(0, TILE)
        log_total = tl.where(total > 0, top + tl.log(some), 0.0)
        tl.store(log_total_HN + head * tokens + rows, log_total, mask=rows < q_end)


@triton.jit
def _tile_gradient(
    q, k, v, o_NHK, do, log_total_HN, q_segment_N, k_segment_M, row, q_end, column, k_end, head, tokens, scale,
    CAUSAL: tl.constexpr, D_V: tl.constexpr, D_V2: tl.constexpr, HEADS: tl.constexpr, TILE: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """The weights p of a tile and the gradient ds of its scores; WHOLE where the queries see no other tile."""
    rows = row + tl.arange(0, TILE)
    log_total = tl.load(log_total_HN + head * tokens + rows, mask=rows < q_end, other=0.0)
    s = _scores(q, k, q_segment_N, k_segment_M, row, q_end, column, k_end, scale, CAUSAL, TILE)
    p = tl.exp(s - log_total[:, None])
    dp = tl.dot(do, tl.trans(v), input_precision="ieee")
    if WHOLE:
        mean = tl.sum(p * dp, 1)
    else:  # the same number, as the sum over all tiles
        o = _load(o_NHK, row, q_end, head, HEADS * D_V, TILE, D_V, D_V2)
        mean = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    ds = p * (dp - mean[:, None]) * scale
    return p.to(q.dtype), ds.to(q.dtype)


@triton.jit
def _attention_backward(
    q_NHK, k_MHK, v_MHK, o_NHK, do_NHK, log_total_HN, dq_NHK, dk_MHK, dv_MHK,
    groups, q_offsets, k_offsets, q_segment_N, k_segment_M, tokens, scale,
    q_stride, k_stride, v_stride, dq_stride, dk_stride, dv_stride,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr, D_V: tl.constexpr, D_V2: tl.constexpr,
    HEADS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    q_start, q_end, k_start, k_end = _owned(groups, q_offsets, k_offsets)
    if (q_end - q_start <= TILE) & (k_end - k_start <= TILE):  # one tile
        if q_end + k_end > q_start + k_start:
            q = _load(q_NHK, q_start, q_end, head, q_stride, TILE, D_K, D_K2)
            k = _load(k_MHK, k_start, k_end, head, k_stride, TILE, D_K, D_K2)
            v = _load(v_MHK, k_start, k_end, head, v_stride, TILE, D_V, D_V2)
            do = _load(do_NHK, q_start, q_end, head, HEADS * D_V, TILE, D_V, D_V2)
            p, ds = _tile_gradient(
                q, k, v, o_NHK, do, log_total_HN, q_segment_N, k_segment_M, q_start, q_end, k_start, k_end, head,
                tokens, scale, CAUSAL, D_V, D_V2, HEADS, TILE, True,
            )  # fmt: skip
            dv = tl.dot(tl.trans(p), do, input_precision="ieee")
            _store(dv_MHK, dv, k_start, k_end, head, dv_stride, TILE, D_V, D_V2)
            dk = tl.dot(tl.trans(ds), q, input_precision="ieee")
            _store(dk_MHK, dk, k_start, k_end, head, dk_stride, TILE, D_K, D_K2)
            dq = tl.dot(ds, k, input_precision="ieee")
            _store(dq_NHK, dq, q_start, q_end, head, dq_stride, TILE, D_K, D_K2)
    else:  # one long segment, by one tile of keys after another; the queries' gradients grow in memory
        for column in range(k_start, k_end, TILE):
            k = _load(k_MHK, column, k_end, head, k_stride, TILE, D_K, D_K2)
            v = _load(v_MHK, column, k_end, head, v_stride, TILE, D_V, D_V2)
            dk, dv = tl.zeros((TILE, D_K2), tl.float32), tl.zeros((TILE, D_V2), tl.float32)
            for row in range(column if CAUSAL else q_start, q_end, TILE):  # queries before see none of these keys
                q = _load(q_NHK, row, q_end, head, q_stride, TILE, D_K, D_K2)
                do = _load(do_NHK, row, q_end, head, HEADS * D_V, TILE, D_V, D_V2)
                p, ds = _tile_gradient(
                    q, k, v, o_NHK, do, log_total_HN, q_segment_N, k_segment_M, row, q_end, column, k_end, head,
                    tokens, scale, CAUSAL, D_V, D_V2, HEADS, TILE, False,
                )  # fmt: skip
                dv += tl.dot(tl.trans(p), do, input_precision="ieee")
                dk += tl.dot(tl.trans(ds), q, input_precision="ieee")
                dq = tl.dot(ds, k, input_precision="ieee")
                if column > k_start:
                    dq += _load(dq_NHK, row, q_end, head, dq_stride, TILE, D_K, D_K2)
                _store(dq_NHK, dq, row, q_end, head, dq_stride, TILE, D_K, D_K2)
            _store(dk_MHK, dk, column, k_end, head, dk_stride, TILE, D_K, D_K2)
            _store(dv_MHK, dv, column, k_end, head, dv_stride, TILE, D_V, D_V2)
            tl.debug_barrier()  # what was stored is there for whoever adds to it next
        if k_start == k_end:  # without a key there is no gradient
            for row in range(q_start, q_end, TILE):
                nothing = tl.zeros((TILE, D_K2), tl.float32)
                _store(dq_NHK, nothing, row, q_end, head, dq_stride, TILE, D_K, D_K2)


class SegmentAttention(torch.autograd.Function):
    """softmax(QK^T / sqrt(d_k)) V within each segment."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, q_segments: Segments, k_segments: Segments, causal: bool
    ) -> Tensor:
        """(N, H, K) queries, (M, H, K) keys and values to (N, H, K)."""
        N, H, _ = q.shape
        o = q.new_empty(N, H, v.shape[2])
        log_total_HN = torch.empty(H, N, dtype=torch.float32, device=q.device)
        # Both sides of a batch are cut into the same groups; sides that never met have each segment for itself.
        met = q_segments.groups_G1 is k_segments.groups_G1
        groups = q_segments.groups_G1 if met and q_segments.groups_G1 is not None else q_segments.singles
        where = (groups, q_segments.offsets_B1, k_segments.offsets_B1, q_segments.segment_N, k_segments.segment_N)
        sizes = _sizes(q, v, causal, _FORWARD_REGISTERS)
        _attention_forward[(H, len(groups) - 1)](q, k, v, o, log_total_HN, *where, *_scalars(q, k, v), **sizes)
        ctx.save_for_backward(q, k, v, o, log_total_HN, *where)
        ctx.causal = causal
        return o

    @staticmethod
    def backward(ctx: Any, do: Tensor) -> Any:
        """The gradients of queries, keys and values."""
        q, k, v, o, log_total_HN, groups, *where = ctx.saved_tensors
        dq, dk, dv = empty_adjacent(q, k, v)
        strides = (x.stride(0) for x in (dq, dk, dv))
        _attention_backward[(q.shape[1], len(groups) - 1)](
            q, k, v, o, do.contiguous(), log_total_HN, dq, dk, dv, groups, *where,
            *_scalars(q, k, v), *strides, **_sizes(q, v, ctx.causal, _BACKWARD_REGISTERS),
        )  # fmt: skip
        return dq, dk, dv, None, None, None


def _scalars(q: Tensor, k: Tensor, v: Tensor) -> tuple[int | float, ...]:
    return q.shape[0], q.shape[2] ** -0.5, q.stride(0), k.stride(0), v.stride(0)


def _sizes(q: Tensor, v: Tensor, causal: bool, registers: int) -> dict[str, Any]:
    (_, H, d_k), d_v = q.shape, v.shape[2]
    d_k2, d_v2 = (max(16, triton.next_power_of_2(width)) for width in (d_k, d_v))
    shapes = {"D_K": d_k, "D_K2": d_k2, "D_V": d_v, "D_V2": d_v2, "HEADS": H, "TILE": TILE}
    limit = {"maxnreg": registers} if max(d_k2, d_v2) <= 64 else {}
    return {"CAUSAL": causal, **shapes, "num_warps": 4, "num_stages": 1, **limit}

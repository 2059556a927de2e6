"""Attention over short segments, for CUDA.

Sentences are short: the tiles of general kernels would be mostly empty. Here one program processes one head of a group
of adjacent segments that together fit in one small tile (in the backward pass, the heads of queries that share one
head of keys and values). It loads the tile once, computes all scores in one product and
masks those between different segments. A segment that is longer than a tile forms a group by itself, which is processed
tile by tile. Programs write disjoint outputs, so no atomic additions are needed.

The forward pass is an online softmax over tiles of keys (section 3.2.1): `maximum` is the largest score so far and
`total` the sum of exp(score - maximum); when the maximum increases, earlier sums are rescaled.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.adjacent_heads import empty_adjacent
from transduce.fast.kernels.common import programs_for
from transduce.nn.segments import TILE, Segments

_FORWARD_REGISTERS, _BACKWARD_REGISTERS = 96, 168
"""Registers per thread for head widths up to 64: with fewer, more programs run in parallel, but too few spill."""
_PROGRAMS = 8
"""Programs for each one of `programs_for`."""


@triton.jit
def _tile_pointers(x, start, end, head, stride, TILE: tl.constexpr, WIDTH: tl.constexpr, WIDTH_2: tl.constexpr):
    """Pointers to rows start:start+TILE of one head, and a mask of those before `end`."""
    rows, columns = start + tl.arange(0, TILE), tl.arange(0, WIDTH_2)
    pointers = x + rows[:, None].to(tl.int64) * stride + head * WIDTH + columns[None, :]
    return pointers, (rows < end)[:, None] & (columns < WIDTH)[None, :]


@triton.jit
def _load(x, start, end, head, stride, TILE: tl.constexpr, WIDTH: tl.constexpr, WIDTH_2: tl.constexpr):
    """Load a tile, with zeros from row `end` on."""
    pointers, inside = _tile_pointers(x, start, end, head, stride, TILE, WIDTH, WIDTH_2)
    return tl.load(pointers, mask=inside, other=0.0)


@triton.jit
def _store(x, tile, start, end, head, stride, TILE: tl.constexpr, WIDTH: tl.constexpr, WIDTH_2: tl.constexpr):
    """Store the rows of a tile before `end`."""
    pointers, inside = _tile_pointers(x, start, end, head, stride, TILE, WIDTH, WIDTH_2)
    tl.store(pointers, tile.to(x.dtype.element_ty), mask=inside)


@triton.jit
def _scores(q, k, q_segment_N, k_segment_M, row, q_end, column, k_end, scale, CAUSAL: tl.constexpr, TILE: tl.constexpr):
    """QK^T / sqrt(d_k) of a tile; -inf if the query must not attend to the key."""
    rows, columns = row + tl.arange(0, TILE), column + tl.arange(0, TILE)
    q_segments = tl.load(q_segment_N + rows, mask=rows < q_end, other=-1)
    k_segments = tl.load(k_segment_M + columns, mask=columns < k_end, other=-2)
    allowed = q_segments[:, None] == k_segments[None, :]
    if CAUSAL:
        allowed = allowed & (columns[None, :] <= rows[:, None])
    return tl.where(allowed, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))


@triton.jit
def _segments_of(group, groups, group_count):
    """The first segment of a group, and the first after it; the groups after the last one of a batch are empty."""
    first = tl.load(groups + group, mask=group < group_count, other=0)
    return first, tl.load(groups + group + 1, mask=group < group_count, other=0)


@triton.jit
def _attention_forward(
    q_NHK, k_MHK, v_MHK, o_NHK, log_total_HN, groups, q_offsets, k_offsets, q_segment_N, k_segment_M, group_count,
    tokens, scale, q_stride, k_stride, v_stride,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr, D_V: tl.constexpr, D_V2: tl.constexpr,
    HEADS: tl.constexpr, SHARED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    kv_head = head // SHARED
    group = tl.program_id(1)
    first, last = _segments_of(group, groups, group_count)
    while first < last:
        q_start, q_end = tl.load(q_offsets + first), tl.load(q_offsets + last)
        k_start, k_end = tl.load(k_offsets + first), tl.load(k_offsets + last)
        for row in range(q_start, q_end, TILE):
            q = _load(q_NHK, row, q_end, head, q_stride, TILE, D_K, D_K2)
            maximum = tl.full((TILE,), float("-inf"), tl.float32)
            total = tl.zeros((TILE,), tl.float32)
            o = tl.zeros((TILE, D_V2), tl.float32)
            for column in range(k_start, min(k_end, row + TILE) if CAUSAL else k_end, TILE):
                k = _load(k_MHK, column, k_end, kv_head, k_stride, TILE, D_K, D_K2)
                v = _load(v_MHK, column, k_end, kv_head, v_stride, TILE, D_V, D_V2)
                s = _scores(q, k, q_segment_N, k_segment_M, row, q_end, column, k_end, scale, CAUSAL, TILE)
                new_maximum = tl.maximum(maximum, tl.max(s, 1))
                finite_maximum = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)  # a row may have no key yet
                p = tl.exp(s - finite_maximum[:, None])
                rescale = tl.exp(maximum - finite_maximum)
                total = total * rescale + tl.sum(p, 1)
                o = o * rescale[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
                maximum = new_maximum
            denominator = tl.where(total > 0, total, 1.0)  # without keys the output is zero
            _store(o_NHK, o / denominator[:, None], row, q_end, head, HEADS * D_V, TILE, D_V, D_V2)
            rows = row + tl.arange(0, TILE)
            log_total = tl.where(total > 0, maximum + tl.log(denominator), 0.0)
            tl.store(log_total_HN + head * tokens + rows, log_total, mask=rows < q_end)
        group += tl.num_programs(1)
        first, last = _segments_of(group, groups, group_count)


@triton.jit
def _tile_gradient(
    q, k, v, o_NHK, do, log_total_HN, q_segment_N, k_segment_M, row, q_end, column, k_end, head, tokens, scale,
    CAUSAL: tl.constexpr, D_V: tl.constexpr, D_V2: tl.constexpr, HEADS: tl.constexpr, TILE: tl.constexpr,
    ONE_TILE: tl.constexpr,
):  # fmt: skip
    """The weights p of a tile and the gradient ds of its scores; ONE_TILE if it contains all keys of the queries."""
    rows = row + tl.arange(0, TILE)
    log_total = tl.load(log_total_HN + head * tokens + rows, mask=rows < q_end, other=0.0)
    s = _scores(q, k, q_segment_N, k_segment_M, row, q_end, column, k_end, scale, CAUSAL, TILE)
    p = tl.exp(s - log_total[:, None])
    dp = tl.dot(do, tl.trans(v), input_precision="ieee")
    if ONE_TILE:
        mean = tl.sum(p * dp, 1)
    else:  # the same value, from the output: the sum over all tiles
        o = _load(o_NHK, row, q_end, head, HEADS * D_V, TILE, D_V, D_V2)
        mean = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    ds = p * (dp - mean[:, None]) * scale
    return p.to(q.dtype), ds.to(q.dtype)


@triton.jit
def _attention_backward(
    q_NHK, k_MHK, v_MHK, o_NHK, do_NHK, log_total_HN, dq_NHK, dk_MHK, dv_MHK,
    groups, q_offsets, k_offsets, q_segment_N, k_segment_M, group_count, tokens, scale,
    q_stride, k_stride, v_stride, dq_stride, dk_stride, dv_stride,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr, D_V: tl.constexpr, D_V2: tl.constexpr,
    HEADS: tl.constexpr, SHARED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    kv_head = tl.program_id(0)
    group = tl.program_id(1)
    first, last = _segments_of(group, groups, group_count)
    while first < last:
        q_start, q_end = tl.load(q_offsets + first), tl.load(q_offsets + last)
        k_start, k_end = tl.load(k_offsets + first), tl.load(k_offsets + last)
        if (q_end - q_start <= TILE) & (k_end - k_start <= TILE):  # one tile
            if q_end + k_end > q_start + k_start:
                k = _load(k_MHK, k_start, k_end, kv_head, k_stride, TILE, D_K, D_K2)
                v = _load(v_MHK, k_start, k_end, kv_head, v_stride, TILE, D_V, D_V2)
                dk, dv = tl.zeros((TILE, D_K2), tl.float32), tl.zeros((TILE, D_V2), tl.float32)
                for shared in range(SHARED):  # a constant: no loop if it is 1
                    head = kv_head * SHARED + shared
                    q = _load(q_NHK, q_start, q_end, head, q_stride, TILE, D_K, D_K2)
                    do = _load(do_NHK, q_start, q_end, head, HEADS * D_V, TILE, D_V, D_V2)
                    p, ds = _tile_gradient(
                        q, k, v, o_NHK, do, log_total_HN, q_segment_N, k_segment_M, q_start, q_end, k_start, k_end,
                        head, tokens, scale, CAUSAL, D_V, D_V2, HEADS, TILE, True,
                    )  # fmt: skip
                    dv = tl.dot(tl.trans(p), do, dv, input_precision="ieee")
                    dk = tl.dot(tl.trans(ds), q, dk, input_precision="ieee")
                    dq = tl.dot(ds, k, input_precision="ieee")
                    _store(dq_NHK, dq, q_start, q_end, head, dq_stride, TILE, D_K, D_K2)
                _store(dv_MHK, dv, k_start, k_end, kv_head, dv_stride, TILE, D_V, D_V2)
                _store(dk_MHK, dk, k_start, k_end, kv_head, dk_stride, TILE, D_K, D_K2)
        else:  # one long segment, tile by tile of keys; the gradients of the queries accumulate in memory
            for column in range(k_start, k_end, TILE):
                k = _load(k_MHK, column, k_end, kv_head, k_stride, TILE, D_K, D_K2)
                v = _load(v_MHK, column, k_end, kv_head, v_stride, TILE, D_V, D_V2)
                dk, dv = tl.zeros((TILE, D_K2), tl.float32), tl.zeros((TILE, D_V2), tl.float32)
                for shared in range(SHARED):
                    head = kv_head * SHARED + shared
                    for row in range(
                        column if CAUSAL else q_start, q_end, TILE
                    ):  # earlier queries attend to none of these keys
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
                _store(dk_MHK, dk, column, k_end, kv_head, dk_stride, TILE, D_K, D_K2)
                _store(dv_MHK, dv, column, k_end, kv_head, dv_stride, TILE, D_V, D_V2)
                tl.debug_barrier()  # the next iteration reads the stored gradients
            if k_start == k_end:  # without keys the gradient is zero
                for shared in range(SHARED):
                    head = kv_head * SHARED + shared
                    for row in range(q_start, q_end, TILE):
                        zeros = tl.zeros((TILE, D_K2), tl.float32)
                        _store(dq_NHK, zeros, row, q_end, head, dq_stride, TILE, D_K, D_K2)
        group += tl.num_programs(1)
        first, last = _segments_of(group, groups, group_count)


class SegmentAttention(torch.autograd.Function):
    """softmax(QK^T / sqrt(d_k)) V within each segment."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, q_segments: Segments, k_segments: Segments, causal: bool
    ) -> Tensor:
        """(N, H, K) queries, (M, G, K) keys and values to (N, H, K); each of G heads serves H / G of the queries'."""
        N, H, _ = q.shape
        o = q.new_empty(N, H, v.shape[2])
        log_total_HN = torch.empty(H, N, dtype=torch.float32, device=q.device)
        # The streams of a batch share their groups; otherwise, every segment is a group.
        same_groups = q_segments.groups_G1 is k_segments.groups_G1
        groups = q_segments.groups_G1 if same_groups and q_segments.groups_G1 is not None else q_segments.singles
        bounds = (groups, q_segments.offsets_B1, k_segments.offsets_B1, q_segments.segment_N, k_segments.segment_N)
        sizes = _sizes(q, v, causal, _FORWARD_REGISTERS)
        grid, scalars = _grid(H, groups), _scalars(groups, q, k, v)
        _attention_forward[grid](q, k, v, o, log_total_HN, *bounds, *scalars, **sizes)
        ctx.save_for_backward(q, k, v, o, log_total_HN, *bounds)
        ctx.causal = causal
        return o

    @staticmethod
    def backward(ctx: Any, do: Tensor) -> Any:
        """The gradients of queries, keys and values."""
        q, k, v, o, log_total_HN, groups, *bounds = ctx.saved_tensors
        dq, dk, dv = empty_adjacent(q, k, v)
        strides = (x.stride(0) for x in (dq, dk, dv))
        _attention_backward[_grid(k.shape[1], groups)](
            q, k, v, o, do.contiguous(), log_total_HN, dq, dk, dv, groups, *bounds,
            *_scalars(groups, q, k, v), *strides, **_sizes(q, v, ctx.causal, _BACKWARD_REGISTERS),
        )  # fmt: skip
        return dq, dk, dv, None, None, None


def _grid(heads: int, groups: Tensor) -> tuple[int, int]:
    """A program processes several groups of a head, because most of those that a batch has memory for may be empty."""
    programs = _PROGRAMS * programs_for(groups.device)
    return heads, min(triton.cdiv(programs, heads), len(groups) - 1)


def _scalars(groups: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[int | float, ...]:
    return len(groups) - 1, q.shape[0], q.shape[2] ** -0.5, q.stride(0), k.stride(0), v.stride(0)


def _sizes(q: Tensor, v: Tensor, causal: bool, registers: int) -> dict[str, Any]:
    (_, H, d_k), d_v = q.shape, v.shape[2]
    d_k2, d_v2 = (max(16, triton.next_power_of_2(width)) for width in (d_k, d_v))
    shapes = {"D_K": d_k, "D_K2": d_k2, "D_V": d_v, "D_V2": d_v2, "HEADS": H, "SHARED": H // v.shape[1], "TILE": TILE}
    limit = {"maxnreg": registers} if max(d_k2, d_v2) <= 64 else {}
    return {"CAUSAL": causal, **shapes, "num_warps": 4, "num_stages": 1, **limit}

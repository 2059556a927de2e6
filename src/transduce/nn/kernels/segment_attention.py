"""Attention over short segments, for CUDA.

Sentences are short: tiles as wide as those of general kernels would be mostly empty. Here one program owns one
(segment, head) and walks over it in small tiles. A sentence of up to 32 tokens is one tile, loaded once; nothing is
shared between programs, so nothing needs atomic additions.

Forward is the softmax of section 3.2.1, taken over one block of keys after another: `top` is the largest score seen
so far, `total` the sum of exp(score - top), and what was summed under an older `top` is scaled down when a larger one
comes.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 32
"""Queries and keys of a tile."""
_WARPS = 2


@triton.jit
def _place(x, start, end, head, stride, BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDTH_2: tl.constexpr):
    """Where rows start:start+BLOCK of one head lie, and which of them are before `end`."""
    rows, columns = start + tl.arange(0, BLOCK), tl.arange(0, WIDTH_2)
    place = x + rows[:, None].to(tl.int64) * stride + head * WIDTH + columns[None, :]
    return place, (rows < end)[:, None] & (columns < WIDTH)[None, :]


@triton.jit
def _load(x, start, end, head, stride, BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDTH_2: tl.constexpr):
    """A tile; zeros at and behind `end`."""
    place, inside = _place(x, start, end, head, stride, BLOCK, WIDTH, WIDTH_2)
    return tl.load(place, mask=inside, other=0.0)


@triton.jit
def _store(x, tile, start, end, head, stride, BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDTH_2: tl.constexpr):
    """Write a tile's rows before `end`."""
    place, inside = _place(x, start, end, head, stride, BLOCK, WIDTH, WIDTH_2)
    tl.store(place, tile.to(x.dtype.element_ty), mask=inside)


@triton.jit
def _scores(q, k, row, column, q_start, k_start, k_end, scale, CAUSAL: tl.constexpr, BLOCK: tl.constexpr):
    """QK^T / sqrt(d_k) of a tile, -inf where a query must not look."""
    rows, columns = row + tl.arange(0, BLOCK), column + tl.arange(0, BLOCK)
    allowed = (columns < k_end)[None, :]
    if CAUSAL:
        allowed = allowed & ((columns - k_start)[None, :] <= (rows - q_start)[:, None])
    return tl.where(allowed, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))


@triton.jit
def _forward(
    q_NHK, k_MHK, v_MHK, o_NHK, log_total_HN, q_offsets, k_offsets, tokens, scale, q_stride, k_stride, v_stride,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr, D_V: tl.constexpr, D_V2: tl.constexpr,
    HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    segment, head = tl.program_id(0), tl.program_id(1)
    q_start, q_end = tl.load(q_offsets + segment), tl.load(q_offsets + segment + 1)
    k_start, k_end = tl.load(k_offsets + segment), tl.load(k_offsets + segment + 1)
    for row in range(q_start, q_end, BLOCK):
        q = _load(q_NHK, row, q_end, head, q_stride, BLOCK, D_K, D_K2)
        top = tl.full((BLOCK,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        o = tl.zeros((BLOCK, D_V2), tl.float32)
        for column in range(k_start, k_end, BLOCK):
            k = _load(k_MHK, column, k_end, head, k_stride, BLOCK, D_K, D_K2)
            v = _load(v_MHK, column, k_end, head, v_stride, BLOCK, D_V, D_V2)
            s = _scores(q, k, row, column, q_start, k_start, k_end, scale, CAUSAL, BLOCK)
            higher = tl.maximum(top, tl.max(s, 1))
            settled = tl.where(higher == float("-inf"), 0.0, higher)  # a row may have seen nothing yet
            p = tl.exp(s - settled[:, None])
            shrink = tl.exp(top - settled)
            total = total * shrink + tl.sum(p, 1)
            o = o * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
            top = higher
        some = tl.where(total > 0, total, 1.0)  # without a key the output is zero
        _store(o_NHK, o / some[:, None], row, q_end, head, HEADS * D_V, BLOCK, D_V, D_V2)
        rows = row + tl.arange(0, BLOCK)
        log_total = tl.where(total > 0, top + tl.log(some), 0.0)
        tl.store(log_total_HN + head * tokens + rows, log_total, mask=rows < q_end)


@triton.jit
def _tile_gradient(
    q_NHK, o_NHK, do_NHK, log_total_HN, k, v, row, column, q_start, q_end, k_start, k_end, head, tokens,
    scale, q_stride,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr, D_V: tl.constexpr, D_V2: tl.constexpr,
    HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The tile's weights p, the gradient ds of its scores, and its queries and output gradients."""
    q = _load(q_NHK, row, q_end, head, q_stride, BLOCK, D_K, D_K2)
    o = _load(o_NHK, row, q_end, head, HEADS * D_V, BLOCK, D_V, D_V2)
    do = _load(do_NHK, row, q_end, head, HEADS * D_V, BLOCK, D_V, D_V2)
    rows = row + tl.arange(0, BLOCK)
    log_total = tl.load(log_total_HN + head * tokens + rows, mask=rows < q_end, other=0.0)
    p = tl.exp(_scores(q, k, row, column, q_start, k_start, k_end, scale, CAUSAL, BLOCK) - log_total[:, None])
    p = tl.where((rows < q_end)[:, None], p, 0.0)
    dp = tl.dot(do, tl.trans(v), input_precision="ieee")
    mean = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    ds = p * (dp - mean[:, None]) * scale
    return p.to(q.dtype), ds.to(q.dtype), q, do


@triton.jit
def _backward(
    q_NHK, k_MHK, v_MHK, o_NHK, do_NHK, log_total_HN, dq_NHK, dk_MHK, dv_MHK, q_offsets, k_offsets, tokens, scale,
    q_stride, k_stride, v_stride,
    CAUSAL: tl.constexpr, D_K: tl.constexpr, D_K2: tl.constexpr, D_V: tl.constexpr, D_V2: tl.constexpr,
    HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    segment, head = tl.program_id(0), tl.program_id(1)
    q_start, q_end = tl.load(q_offsets + segment), tl.load(q_offsets + segment + 1)
    k_start, k_end = tl.load(k_offsets + segment), tl.load(k_offsets + segment + 1)
    one_block = (k_end > k_start) & (k_end - k_start <= BLOCK)
    for column in range(k_start, k_end, BLOCK):
        k = _load(k_MHK, column, k_end, head, k_stride, BLOCK, D_K, D_K2)
        v = _load(v_MHK, column, k_end, head, v_stride, BLOCK, D_V, D_V2)
        dk, dv = tl.zeros((BLOCK, D_K2), tl.float32), tl.zeros((BLOCK, D_V2), tl.float32)
        for row in range(q_start, q_end, BLOCK):
            p, ds, q, do = _tile_gradient(
                q_NHK, o_NHK, do_NHK, log_total_HN, k, v, row, column, q_start, q_end, k_start, k_end, head, tokens,
                scale, q_stride, CAUSAL, D_K, D_K2, D_V, D_V2, HEADS, BLOCK,
            )  # fmt: skip
            dv += tl.dot(tl.trans(p), do, input_precision="ieee")
            dk += tl.dot(tl.trans(ds), q, input_precision="ieee")
            if one_block:  # the queries have met all of their keys
                dq = tl.dot(ds, k, input_precision="ieee")
                _store(dq_NHK, dq, row, q_end, head, HEADS * D_K, BLOCK, D_K, D_K2)
        _store(dk_MHK, dk, column, k_end, head, HEADS * D_K, BLOCK, D_K, D_K2)
        _store(dv_MHK, dv, column, k_end, head, HEADS * D_V, BLOCK, D_V, D_V2)
    if one_block == 0:  # longer segments are walked over once more, query by query
        for row in range(q_start, q_end, BLOCK):
            dq = tl.zeros((BLOCK, D_K2), tl.float32)
            for column in range(k_start, k_end, BLOCK):
                k = _load(k_MHK, column, k_end, head, k_stride, BLOCK, D_K, D_K2)
                v = _load(v_MHK, column, k_end, head, v_stride, BLOCK, D_V, D_V2)
                p, ds, q, do = _tile_gradient(
                    q_NHK, o_NHK, do_NHK, log_total_HN, k, v, row, column, q_start, q_end, k_start, k_end, head, tokens,
                    scale, q_stride, CAUSAL, D_K, D_K2, D_V, D_V2, HEADS, BLOCK,
                )  # fmt: skip
                dq += tl.dot(ds, k, input_precision="ieee")
            _store(dq_NHK, dq, row, q_end, head, HEADS * D_K, BLOCK, D_K, D_K2)


def _sizes(q: Tensor, v: Tensor, causal: bool) -> dict[str, Any]:
    d_k, d_v = q.shape[2], v.shape[2]
    widths = {"D_K2": max(16, triton.next_power_of_2(d_k)), "D_V2": max(16, triton.next_power_of_2(d_v))}
    return {"CAUSAL": causal, "D_K": d_k, "D_V": d_v, **widths, "HEADS": q.shape[1], "BLOCK": BLOCK}


@torch.library.custom_op("transduce::segment_attention", mutates_args=())
def segment_attention(
    q_NHK: Tensor, k_MHK: Tensor, v_MHK: Tensor, q_offsets: Tensor, k_offsets: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """softmax(QK^T / sqrt(d_k)) V within each segment, and the logarithm of each softmax's denominator."""
    N, H, d_k = q_NHK.shape
    o_NHK = q_NHK.new_empty(N, H, v_MHK.shape[2])
    log_total_HN = torch.empty(H, N, dtype=torch.float32, device=q_NHK.device)
    _forward[(len(q_offsets) - 1, H)](
        q_NHK, k_MHK, v_MHK, o_NHK, log_total_HN, q_offsets, k_offsets, N, d_k**-0.5,
        q_NHK.stride(0), k_MHK.stride(0), v_MHK.stride(0), **_sizes(q_NHK, v_MHK, causal), num_warps=_WARPS,
    )  # fmt: skip
    return o_NHK, log_total_HN


@segment_attention.register_fake
def _(q_NHK, k_MHK, v_MHK, q_offsets, k_offsets, causal):
    N, H, _ = q_NHK.shape
    return q_NHK.new_empty(N, H, v_MHK.shape[2]), q_NHK.new_empty(H, N, dtype=torch.float32)


@torch.library.custom_op("transduce::segment_attention_backward", mutates_args=())
def segment_attention_backward(
    do_NHK: Tensor, q_NHK: Tensor, k_MHK: Tensor, v_MHK: Tensor, o_NHK: Tensor, log_total_HN: Tensor,
    q_offsets: Tensor, k_offsets: Tensor, causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of queries, keys and values."""
    N, H, d_k = q_NHK.shape
    do_NHK = do_NHK.contiguous()
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q_NHK, k_MHK, v_MHK))
    _backward[(len(q_offsets) - 1, H)](
        q_NHK, k_MHK, v_MHK, o_NHK, do_NHK, log_total_HN, dq, dk, dv, q_offsets, k_offsets, N, d_k**-0.5,
        q_NHK.stride(0), k_MHK.stride(0), v_MHK.stride(0), **_sizes(q_NHK, v_MHK, causal), num_warps=_WARPS,
    )  # fmt: skip
    return dq, dk, dv


@segment_attention_backward.register_fake
def _(do_NHK, q_NHK, k_MHK, v_MHK, *_):
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q_NHK, k_MHK, v_MHK))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q_NHK, k_MHK, v_MHK, q_offsets, k_offsets, ctx.causal = inputs
    ctx.save_for_backward(q_NHK, k_MHK, v_MHK, *output, q_offsets, k_offsets)


def _gradients(ctx: Any, do_NHK: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return (*segment_attention_backward(do_NHK, *ctx.saved_tensors, ctx.causal), None, None, None)


segment_attention.register_autograd(_gradients, setup_context=_save)

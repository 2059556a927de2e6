"""A residual connection and the norm after it, or with pre-norm the norm of the next one, in one pass, for CUDA.

Training with post-norm has its own kernel (`add_norm`), which does not keep the sum for anything else.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.common import (
    draw_seeds,
    dropout_scale,
    early,
    norm_sizes,
    programs_for,
    start_next,
    sum_partials,
    wait_for_inputs,
)

_FEW_ROWS = 256
"""The number of rows up to which a program has one of them, on an H200."""


@triton.jit
def _forward(
    x_ND, sublayer_PND, bias_D, gain_D, shift_D, seeds, sum_ND, y_ND, mean_N, scale_N, tokens, p, epsilon,
    PARTS: tl.constexpr, BIAS: tl.constexpr, DROPS: tl.constexpr, RMS: tl.constexpr, D: tl.constexpr, D2: tl.constexpr,
    ROWS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    start_next(EARLY)
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D2)
    offsets = rows[:, None].to(tl.int64) * D + columns[None, :]
    inside = (rows < tokens)[:, None] & (columns < D)[None, :]
    gain = tl.load(gain_D + columns, mask=columns < D, other=0.0).to(tl.float32)
    wait_for_inputs(EARLY)
    x = tl.load(x_ND + offsets, mask=inside, other=0.0).to(tl.float32)
    if PARTS > 0:
        sublayer = tl.zeros((ROWS, D2), tl.float32)
        for part in tl.static_range(PARTS):
            sublayer += tl.load(sublayer_PND + part * tokens * D + offsets, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            sublayer += tl.load(bias_D + columns, mask=columns < D, other=0.0).to(tl.float32)[None, :]
        if DROPS:
            sublayer *= dropout_scale(offsets, seeds, p)
        rounded = (x + sublayer).to(sum_ND.dtype.element_ty)
        tl.store(sum_ND + offsets, rounded, mask=inside)
        x = rounded.to(tl.float32)
    if RMS:
        centred = x
    else:
        mean = tl.sum(x, 1) / D
        centred = tl.where(inside, x - mean[:, None], 0.0)
        tl.store(mean_N + rows, mean, mask=rows < tokens)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / D + epsilon)
    y = centred * scale[:, None] * gain[None, :]
    if not RMS:
        y += tl.load(shift_D + columns, mask=columns < D, other=0.0).to(tl.float32)[None, :]
    tl.store(y_ND + offsets, y.to(y_ND.dtype.element_ty), mask=inside)
    tl.store(scale_N + rows, scale, mask=rows < tokens)


@triton.jit
def _backward(
    dy_ND, dsum_ND, sum_ND, mean_N, scale_N, gain_D, seeds, dx_ND, dsublayer_ND, partials_P3D, tokens, p,
    BIAS: tl.constexpr, DROPS: tl.constexpr, RMS: tl.constexpr, D: tl.constexpr, D2: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, D2)
    gain = tl.load(gain_D + columns, mask=columns < D, other=0.0).to(tl.float32)
    dgain, dshift = tl.zeros((ROWS, D2), tl.float32), tl.zeros((ROWS, D2), tl.float32)
    dbias = tl.zeros((ROWS, D2), tl.float32)
    for start in range(tl.program_id(0) * ROWS, tokens, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        offsets = rows[:, None].to(tl.int64) * D + columns[None, :]
        inside = (rows < tokens)[:, None] & (columns < D)[None, :]
        dy = tl.load(dy_ND + offsets, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scale_N + rows, mask=rows < tokens, other=0.0)
        normed = tl.load(sum_ND + offsets, mask=inside, other=0.0).to(tl.float32)
        if not RMS:
            mean = tl.load(mean_N + rows, mask=rows < tokens, other=0.0)
            normed = tl.where(inside, normed - mean[:, None], 0.0)
        normed *= scale[:, None]
        g = dy * gain[None, :]
        # The norm does not change if x is scaled or, unless it is RMSNorm, shifted: these directions have no gradient.
        dx = g - normed * (tl.sum(g * normed, 1) / D)[:, None]
        if not RMS:
            dx -= (tl.sum(g, 1) / D)[:, None]
        dx = dx * scale[:, None] + tl.load(dsum_ND + offsets, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ND + offsets, dx.to(dx_ND.dtype.element_ty), mask=inside)
        if DROPS:
            dx *= dropout_scale(offsets, seeds, p)
            tl.store(dsublayer_ND + offsets, dx.to(dsublayer_ND.dtype.element_ty), mask=inside)
        if BIAS:
            dbias += dx
        dgain += dy * normed
        dshift += dy
    partial = partials_P3D + tl.program_id(0) * 3 * D + columns
    tl.store(partial, tl.sum(dgain, 0), mask=columns < D)
    tl.store(partial + D, tl.sum(dshift, 0), mask=columns < D)
    tl.store(partial + 2 * D, tl.sum(dbias, 0), mask=columns < D)


class AddThenNorm(torch.autograd.Function):
    """(norm(s), s), where s = x + Dropout(sublayer + bias), or x if there is no sub-layer; RMSNorm without a shift."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        sublayer_PND: Tensor | None,
        bias_D: Tensor | None,
        gain_D: Tensor,
        shift_D: Tensor | None,
        p: float,
        epsilon: float,
    ) -> tuple[Tensor, Tensor]:
        """(N, D), and a sub-layer's output as terms (P, N, D) whose sum it is, to (N, D) and (N, D)."""
        adds, rms, (N, D) = sublayer_PND is not None, shift_D is None, x_ND.shape
        x_ND, terms_PND = x_ND.contiguous(), x_ND[None] if sublayer_PND is None else sublayer_PND.contiguous()
        sum_ND, y_ND = torch.empty_like(x_ND) if adds else x_ND, torch.empty_like(x_ND)
        seeds = draw_seeds(p, x_ND.device)
        mean_N, scale_N = (torch.empty(N, dtype=torch.float32, device=x_ND.device) for _ in range(2))
        sizes = norm_sizes(D) | ({"ROWS": 1, "num_warps": 4} if N <= _FEW_ROWS else {})
        _forward[(triton.cdiv(N, sizes["ROWS"]),)](
            x_ND, terms_PND, gain_D if bias_D is None else bias_D, gain_D, gain_D if rms else shift_D, seeds, sum_ND,
            y_ND, mean_N, scale_N, N, p, epsilon, PARTS=len(terms_PND) if adds else 0, BIAS=bias_D is not None,
            DROPS=p > 0, RMS=rms, **sizes, **early(x_ND.device),
        )  # fmt: skip
        ctx.save_for_backward(sum_ND, mean_N, scale_N, gain_D, seeds)
        ctx.adds, ctx.has_bias, ctx.rms, ctx.p = adds, bias_D is not None, rms, p
        return y_ND, sum_ND if adds else x_ND.view_as(x_ND)

    @staticmethod
    def backward(ctx: Any, dy_ND: Tensor, dsum_ND: Tensor) -> Any:
        """The gradients of x, the sub-layer's output (one term), the bias, gain and shift."""
        sum_ND, mean_N, scale_N, gain_D, seeds = ctx.saved_tensors
        N, D = sum_ND.shape
        dx_ND, sizes = torch.empty_like(sum_ND), norm_sizes(D)
        dsublayer_ND = torch.empty_like(sum_ND) if ctx.p else dx_ND
        programs = programs_for(sum_ND.device) * 4 // sizes["num_warps"]
        partials_P3D = torch.empty(programs, 3, D, dtype=torch.float32, device=sum_ND.device)
        _backward[(programs,)](
            dy_ND.contiguous(), dsum_ND.contiguous(), sum_ND, mean_N, scale_N, gain_D, seeds, dx_ND, dsublayer_ND,
            partials_P3D, N, ctx.p, BIAS=ctx.has_bias, DROPS=ctx.p > 0, RMS=ctx.rms, **sizes,
        )  # fmt: skip
        dgain_D, dshift_D, dbias_D = sum_partials(partials_P3D.flatten(1), gain_D.dtype).split(D)
        return (
            dx_ND,
            dsublayer_ND[None] if ctx.adds else None,
            dbias_D if ctx.has_bias else None,
            dgain_D,
            None if ctx.rms else dshift_D,
            None,
            None,
        )

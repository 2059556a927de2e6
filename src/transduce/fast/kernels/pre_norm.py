"""The two halves of a pre-norm residual connection, each in one pass over memory, for CUDA.

`PreNorm` is norm(x), and x for the connection around the sub-layer, whose gradients its backward pass adds.
`AddResidual` is x + Dropout(sublayer + bias); adding the bias here, and computing its gradient, needs no extra pass.
`add_then_norm` is the end of one connection and the beginning of the next in one pass, without gradients.
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
    sum_partials,
    wait_for_inputs,
)

_BLOCK = 1024


@triton.jit
def _norm_forward(
    x_ND, sublayer_ND, bias_D, gain_D, shift_D, sum_ND, y_ND, mean_N, scale_N, tokens, epsilon,
    ADD: tl.constexpr, BIAS: tl.constexpr, RMS: tl.constexpr, D: tl.constexpr, D2: tl.constexpr, ROWS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    wait_for_inputs(EARLY)
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D2)
    offsets = rows[:, None].to(tl.int64) * D + columns[None, :]
    inside = (rows < tokens)[:, None] & (columns < D)[None, :]
    x = tl.load(x_ND + offsets, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(sublayer_ND + offsets, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            x += tl.load(bias_D + columns, mask=columns < D, other=0.0).to(tl.float32)[None, :]
        rounded = x.to(sum_ND.dtype.element_ty)
        tl.store(sum_ND + offsets, rounded, mask=inside)
        x = rounded.to(tl.float32)
    gain = tl.load(gain_D + columns, mask=columns < D, other=0.0).to(tl.float32)
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
def _norm_backward(
    dy_ND, dx_shortcut_ND, x_ND, mean_N, scale_N, gain_D, dx_ND, partials_P2D, tokens,
    RMS: tl.constexpr, D: tl.constexpr, D2: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, D2)
    gain = tl.load(gain_D + columns, mask=columns < D, other=0.0).to(tl.float32)
    dgain, dshift = tl.zeros((ROWS, D2), tl.float32), tl.zeros((ROWS, D2), tl.float32)
    for start in range(tl.program_id(0) * ROWS, tokens, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        offsets = rows[:, None].to(tl.int64) * D + columns[None, :]
        inside = (rows < tokens)[:, None] & (columns < D)[None, :]
        dy = tl.load(dy_ND + offsets, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scale_N + rows, mask=rows < tokens, other=0.0)
        normed = tl.load(x_ND + offsets, mask=inside, other=0.0).to(tl.float32)
        if not RMS:
            mean = tl.load(mean_N + rows, mask=rows < tokens, other=0.0)
            normed = tl.where(inside, normed - mean[:, None], 0.0)
        normed *= scale[:, None]
        g = dy * gain[None, :]
        # The norm does not change if x is scaled or, unless it is RMSNorm, shifted: these directions have no gradient.
        dx = g - normed * (tl.sum(g * normed, 1) / D)[:, None]
        if not RMS:
            dx -= (tl.sum(g, 1) / D)[:, None]
        dx = dx * scale[:, None] + tl.load(dx_shortcut_ND + offsets, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ND + offsets, dx.to(dx_ND.dtype.element_ty), mask=inside)
        dgain += dy * normed
        dshift += dy
    partial = partials_P2D + tl.program_id(0) * 2 * D + columns
    tl.store(partial, tl.sum(dgain, 0), mask=columns < D)
    tl.store(partial + D, tl.sum(dshift, 0), mask=columns < D)


class PreNorm(torch.autograd.Function):
    """(norm(x), x); RMSNorm if there is no shift."""

    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, gain_D: Tensor, shift_D: Tensor | None, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        """(N, D) to (N, D) and the same (N, D)."""
        x_ND = x_ND.contiguous()
        _, y_ND, mean_N, scale_N = _normalize(x_ND, None, None, gain_D, shift_D, epsilon)
        ctx.save_for_backward(x_ND, mean_N, scale_N, gain_D)
        ctx.rms = shift_D is None
        return y_ND, x_ND.view_as(x_ND)

    @staticmethod
    def backward(ctx: Any, dy_ND: Tensor, dx_shortcut_ND: Tensor) -> Any:
        """The gradients of x, gain and shift."""
        x_ND, mean_N, scale_N, gain_D = ctx.saved_tensors
        N, D = x_ND.shape
        dx_ND, sizes = torch.empty_like(x_ND), norm_sizes(D)
        programs = programs_for(x_ND.device) * 4 // sizes["num_warps"]
        partials_P2D = torch.empty(programs, 2, D, dtype=torch.float32, device=x_ND.device)
        _norm_backward[(programs,)](
            dy_ND.contiguous(), dx_shortcut_ND.contiguous(), x_ND, mean_N, scale_N, gain_D, dx_ND, partials_P2D, N,
            RMS=ctx.rms, **sizes,
        )  # fmt: skip
        dgain_D, dshift_D = sum_partials(partials_P2D.flatten(1), gain_D.dtype).split(D)
        return dx_ND, dgain_D, None if ctx.rms else dshift_D, None


def add_then_norm(
    x_ND: Tensor, sublayer_ND: Tensor, bias_D: Tensor | None, gain_D: Tensor, shift_D: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor]:
    """(norm(x + sublayer + bias), x + sublayer + bias), without gradients; RMSNorm if there is no shift."""
    sum_ND, y_ND, _, _ = _normalize(x_ND.contiguous(), sublayer_ND.contiguous(), bias_D, gain_D, shift_D, epsilon)
    return y_ND, sum_ND


def _normalize(
    x_ND: Tensor,
    sublayer_ND: Tensor | None,
    bias_D: Tensor | None,
    gain_D: Tensor,
    shift_D: Tensor | None,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, to which the sub-layer's output is added if there is one, its norm, and the mean and scale of its rows."""
    adds, rms, (N, D) = sublayer_ND is not None, shift_D is None, x_ND.shape
    sum_ND, y_ND = torch.empty_like(x_ND) if adds else x_ND, torch.empty_like(x_ND)
    mean_N, scale_N = (torch.empty(N, dtype=torch.float32, device=x_ND.device) for _ in range(2))
    sizes = norm_sizes(D)
    _norm_forward[(triton.cdiv(N, sizes["ROWS"]),)](
        x_ND, sublayer_ND if adds else x_ND, gain_D if bias_D is None else bias_D, gain_D,
        gain_D if rms else shift_D, sum_ND, y_ND, mean_N, scale_N, N, epsilon,
        ADD=adds, BIAS=bias_D is not None, RMS=rms, **sizes, **early(x_ND.device),
    )  # fmt: skip
    return sum_ND, y_ND, mean_N, scale_N


@triton.jit
def _add_forward(
    x_ND, sublayer_ND, bias_D, seeds, y_ND, size, p, BIAS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    sublayer = tl.load(sublayer_ND + offsets, mask=offsets < size, other=0.0).to(tl.float32)
    if BIAS:
        sublayer += tl.load(bias_D + offsets % D).to(tl.float32)
    x = tl.load(x_ND + offsets, mask=offsets < size, other=0.0).to(tl.float32)
    y = x + sublayer * dropout_scale(offsets, seeds, p)
    tl.store(y_ND + offsets, y.to(y_ND.dtype.element_ty), mask=offsets < size)


@triton.jit
def _add_backward(
    dy_ND, seeds, dsublayer_ND, partials_PD, tokens, p,
    DROPS: tl.constexpr, D: tl.constexpr, D2: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, D2)
    dbias = tl.zeros((ROWS, D2), tl.float32)
    for start in range(tl.program_id(0) * ROWS, tokens, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        offsets = rows[:, None].to(tl.int64) * D + columns[None, :]
        inside = (rows < tokens)[:, None] & (columns < D)[None, :]
        dsublayer = tl.load(dy_ND + offsets, mask=inside, other=0.0).to(tl.float32)
        if DROPS:
            dsublayer *= dropout_scale(offsets, seeds, p)
            tl.store(dsublayer_ND + offsets, dsublayer.to(dsublayer_ND.dtype.element_ty), mask=inside)
        dbias += dsublayer
    tl.store(partials_PD + tl.program_id(0) * D + columns, tl.sum(dbias, 0), mask=columns < D)


class AddResidual(torch.autograd.Function):
    """x + Dropout(sublayer + bias)."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, sublayer_ND: Tensor, bias_D: Tensor | None, p: float) -> Tensor:
        """(N, D) and (N, D) to (N, D)."""
        x_ND, sublayer_ND = x_ND.contiguous(), sublayer_ND.contiguous()
        seeds, y_ND, D = draw_seeds(p, x_ND.device), torch.empty_like(x_ND), x_ND.shape[1]
        _add_forward[(triton.cdiv(y_ND.numel(), _BLOCK),)](
            x_ND, sublayer_ND, x_ND if bias_D is None else bias_D, seeds, y_ND, y_ND.numel(), p,
            BIAS=bias_D is not None, D=D, BLOCK=_BLOCK,
        )  # fmt: skip
        ctx.save_for_backward(seeds)
        ctx.p, ctx.bias_dtype = p, None if bias_D is None else bias_D.dtype
        return y_ND

    @staticmethod
    def backward(ctx: Any, dy_ND: Tensor) -> Any:
        """The gradients of x, the sub-layer's output and the bias."""
        if ctx.p == 0 and ctx.bias_dtype is None:
            return dy_ND, dy_ND, None, None
        (seeds,) = ctx.saved_tensors
        dy_ND, (N, D) = dy_ND.contiguous(), dy_ND.shape
        dsublayer_ND, sizes = torch.empty_like(dy_ND) if ctx.p else dy_ND, norm_sizes(D)
        programs = programs_for(dy_ND.device) * 4 // sizes["num_warps"]
        partials_PD = torch.empty(programs, D, dtype=torch.float32, device=dy_ND.device)
        _add_backward[(programs,)](dy_ND, seeds, dsublayer_ND, partials_PD, N, ctx.p, DROPS=ctx.p > 0, **sizes)
        dbias_D = None if ctx.bias_dtype is None else sum_partials(partials_PD, ctx.bias_dtype)
        return dy_ND, dsublayer_ND, dbias_D, None

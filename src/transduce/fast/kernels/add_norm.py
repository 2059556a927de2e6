"""LayerNorm(x + Dropout(sublayer + bias)) in one pass over memory, and its gradient in another, for CUDA.

The bias is that of the sub-layer's last projection; adding it here, and computing its gradient, needs no extra pass.

Two readers use the output: the next sub-layer, and the residual connection around it (shortcut). It is returned twice,
once for each, so that their gradients arrive separately and the backward kernel adds them.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.common import draw_seeds, dropout_scale, norm_sizes, programs_for, sum_partials


@triton.jit
def _add_norm_forward(
    x_ND, sublayer_ND, bias_D, gain_D, shift_D, seeds, y_ND, z_ND, mean_N, scale_N, tokens, p, epsilon,
    D: tl.constexpr, D2: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D2)
    offsets = rows[:, None] * D + columns[None, :]
    inside = (rows < tokens)[:, None] & (columns < D)[None, :]
    x = tl.load(x_ND + offsets, mask=inside, other=0.0).to(tl.float32)
    sublayer = tl.load(sublayer_ND + offsets, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_D + columns, mask=columns < D, other=0.0).to(tl.float32)
    z = (x + (sublayer + bias[None, :]) * dropout_scale(offsets, seeds, p)).to(z_ND.dtype.element_ty)
    tl.store(z_ND + offsets, z, mask=inside)
    z = z.to(tl.float32)  # rounded, as in the backward pass
    mean = tl.sum(z, 1) / D
    centred = tl.where(inside, z - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / D + epsilon)
    gain = tl.load(gain_D + columns, mask=columns < D, other=0.0).to(tl.float32)
    shift = tl.load(shift_D + columns, mask=columns < D, other=0.0).to(tl.float32)
    y = centred * scale[:, None] * gain[None, :] + shift[None, :]
    tl.store(y_ND + offsets, y.to(y_ND.dtype.element_ty), mask=inside)
    tl.store(mean_N + rows, mean, mask=rows < tokens)
    tl.store(scale_N + rows, scale, mask=rows < tokens)


@triton.jit
def _add_norm_backward(
    dy_ND, dy_shortcut_ND, z_ND, mean_N, scale_N, gain_D, seeds, dx_ND, dsublayer_ND, partials_P3D, tokens, p,
    D: tl.constexpr, D2: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, D2)
    gain = tl.load(gain_D + columns, mask=columns < D, other=0.0).to(tl.float32)
    dbias = tl.zeros((ROWS, D2), tl.float32)
    dgain, dshift = tl.zeros((ROWS, D2), tl.float32), tl.zeros((ROWS, D2), tl.float32)
    for start in range(tl.program_id(0) * ROWS, tokens, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        offsets = rows[:, None] * D + columns[None, :]
        inside = (rows < tokens)[:, None] & (columns < D)[None, :]
        dy = tl.load(dy_ND + offsets, mask=inside, other=0.0).to(tl.float32)
        dy += tl.load(dy_shortcut_ND + offsets, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_N + rows, mask=rows < tokens, other=0.0)
        scale = tl.load(scale_N + rows, mask=rows < tokens, other=0.0)
        z = tl.load(z_ND + offsets, mask=inside, other=0.0).to(tl.float32)
        normed = tl.where(inside, (z - mean[:, None]) * scale[:, None], 0.0)
        g = dy * gain[None, :]
        # Layer norm does not change if z is shifted or scaled, so these two directions have no gradient.
        along_shift, along_scale = tl.sum(g, 1) / D, tl.sum(g * normed, 1) / D
        dz = (g - along_shift[:, None] - normed * along_scale[:, None]) * scale[:, None]
        dsublayer = dz * dropout_scale(offsets, seeds, p)
        tl.store(dx_ND + offsets, dz.to(dx_ND.dtype.element_ty), mask=inside)
        tl.store(dsublayer_ND + offsets, dsublayer.to(dsublayer_ND.dtype.element_ty), mask=inside)
        dbias += dsublayer
        dgain += dy * normed
        dshift += dy
    partial = partials_P3D + tl.program_id(0) * 3 * D + columns
    tl.store(partial, tl.sum(dbias, 0), mask=columns < D)
    tl.store(partial + D, tl.sum(dgain, 0), mask=columns < D)
    tl.store(partial + 2 * D, tl.sum(dshift, 0), mask=columns < D)


class AddNorm(torch.autograd.Function):
    """LayerNorm(x + Dropout(sublayer + bias)), returned twice."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        sublayer_ND: Tensor,
        bias_D: Tensor,
        gain_D: Tensor,
        shift_D: Tensor,
        p: float,
        epsilon: float,
    ) -> tuple[Tensor, Tensor]:
        """(N, D) and (N, D) to two outputs (N, D) with the same values."""
        N, D = x_ND.shape
        x_ND, sublayer_ND = x_ND.contiguous(), sublayer_ND.contiguous()
        seeds = draw_seeds(p, x_ND.device)
        y_ND, z_ND = torch.empty_like(x_ND), torch.empty_like(x_ND)
        mean_N, scale_N = (torch.empty(N, dtype=torch.float32, device=x_ND.device) for _ in range(2))
        sizes = norm_sizes(D)
        _add_norm_forward[(triton.cdiv(N, sizes["ROWS"]),)](
            x_ND, sublayer_ND, bias_D, gain_D, shift_D, seeds, y_ND, z_ND, mean_N, scale_N, N, p, epsilon, **sizes
        )
        ctx.save_for_backward(z_ND, mean_N, scale_N, gain_D, seeds)
        ctx.p = p
        return y_ND, y_ND.view_as(y_ND)

    @staticmethod
    def backward(ctx: Any, dy_ND: Tensor, dy_shortcut_ND: Tensor) -> Any:
        """The gradients of x, the sub-layer's output, bias, gain and shift."""
        z_ND, mean_N, scale_N, gain_D, seeds = ctx.saved_tensors
        N, D = z_ND.shape
        dx_ND, dsublayer_ND = torch.empty_like(z_ND), torch.empty_like(z_ND)
        sizes = norm_sizes(D)
        programs = programs_for(z_ND.device) * 4 // sizes["num_warps"]
        partials_P3D = torch.empty(programs, 3, D, dtype=torch.float32, device=z_ND.device)
        _add_norm_backward[(programs,)](
            dy_ND.contiguous(), dy_shortcut_ND.contiguous(), z_ND, mean_N, scale_N, gain_D, seeds,
            dx_ND, dsublayer_ND, partials_P3D, N, ctx.p, **sizes,
        )  # fmt: skip
        dbias_D, dgain_D, dshift_D = sum_partials(partials_P3D.flatten(1), gain_D.dtype).split(D)
        return dx_ND, dsublayer_ND, dbias_D, dgain_D, dshift_D, None, None

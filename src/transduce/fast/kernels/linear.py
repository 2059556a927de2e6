"""Linear layers with bias, and max(0, ·) if it follows, fused into the matrix product, for CUDA."""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.common import programs_for, sum_partials

_ROWS, _COLUMNS = 32, 128


@triton.jit
def _relu_gradient(dy_ND, y_ND, dx_ND, partials_PD, tokens, D, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, tokens, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        offsets = rows[:, None].to(tl.int64) * D + columns[None, :]
        inside = (rows < tokens)[:, None] & (columns < D)[None, :]
        y = tl.load(y_ND + offsets, mask=inside, other=0.0)
        dx = tl.where(y > 0, tl.load(dy_ND + offsets, mask=inside, other=0.0), 0.0)
        tl.store(dx_ND + offsets, dx, mask=inside)
        sums += dx.to(tl.float32)
    tl.store(partials_PD + tl.program_id(0) * D + columns, tl.sum(sums, 0), mask=columns < D)


def relu_gradient(dy_ND: Tensor, y_ND: Tensor) -> tuple[Tensor, Tensor]:
    """From the gradient of y = max(0, x), the gradient of x (N, D), and its sum over all rows (D)."""
    dy_ND, (N, D) = dy_ND.contiguous(), dy_ND.shape
    column_blocks = triton.cdiv(D, _COLUMNS)
    programs = max(1, min(programs_for(dy_ND.device) // column_blocks, triton.cdiv(N, _ROWS)))
    dx_ND = torch.empty_like(dy_ND)
    partials_PD = torch.empty(programs, D, dtype=torch.float32, device=dy_ND.device)
    _relu_gradient[(programs, column_blocks)](
        dy_ND, y_ND, dx_ND, partials_PD, N, D, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=4
    )
    return dx_ND, sum_partials(partials_PD, dy_ND.dtype)


class LinearRelu(torch.autograd.Function):
    """x W^T + b or, with `relu`, max(0, x W^T + b)."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor, relu: bool) -> Tensor:
        """(N, D) to (N, F)."""
        multiply = torch._addmm_activation if relu else torch.addmm
        y_NF = multiply(bias_F, x_ND, weight_FD.t())
        ctx.save_for_backward(x_ND, weight_FD, *([y_NF] if relu else []))
        return y_NF

    @staticmethod
    def backward(ctx: Any, dy_NF: Tensor) -> Any:
        """The gradients of x, weight and bias."""
        x_ND, weight_FD, *y_NF = ctx.saved_tensors
        if y_NF:
            dy_NF, dbias_F = relu_gradient(dy_NF, y_NF[0])
        else:  # the sum over all rows as a matrix product, which is several times faster than torch's sum
            dbias_F = (_ones(len(dy_NF), dy_NF.dtype, dy_NF.device) @ dy_NF)[0]
        return dy_NF @ weight_FD, dy_NF.t() @ x_ND, dbias_F, None


@cache
def _ones(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones(8, length, dtype=dtype, device=device)  # one row suffices, but matrix products are tiled by eight

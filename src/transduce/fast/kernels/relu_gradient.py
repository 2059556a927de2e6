"""The gradient of max(0, x + bias), and of the bias, in one pass over memory, for CUDA."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.partial_sums import programs_for, sum_partials

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

"""Sums over all tokens in two steps: each program computes a partial sum, then `sum_partials` adds them up."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _COLUMNS = 128, 16


def programs_for(device: torch.device) -> int:
    """Number of programs of four warps that keeps a GPU busy: a few per multiprocessor, to hide latency."""
    if device.type != "cuda":
        return 2  # Triton's interpreter
    return 4 * torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def _sum_partials(partials_PD, total_D, programs, D, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, programs, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < programs)[:, None] & (columns < D)[None, :]
        total += tl.load(partials_PD + rows[:, None] * D + columns[None, :], mask=inside, other=0.0)
    tl.store(total_D + columns, tl.sum(total, 0).to(total_D.dtype.element_ty), mask=columns < D)


def sum_partials(partials_PD: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum (D) of the partial sums of all programs."""
    P, D = partials_PD.shape
    total_D = torch.empty(D, dtype=dtype, device=partials_PD.device)
    _sum_partials[(triton.cdiv(D, _COLUMNS),)](partials_PD, total_D, P, D, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=8)
    return total_D

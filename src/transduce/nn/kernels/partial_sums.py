"""Sums over all tokens in two steps: each of many programs sums its share, then `fold` adds the shares up."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _COLUMNS = 128, 16


def many_programs(device: torch.device) -> int:
    """As many programs of four warps as keep a GPU busy: a few for each core, to hide each other's waiting."""
    if device.type != "cuda":
        return 2  # Triton's interpreter
    return 4 * torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def _fold(shares_PD, total_D, programs, D, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, programs, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < programs)[:, None] & (columns < D)[None, :]
        total += tl.load(shares_PD + rows[:, None] * D + columns[None, :], mask=inside, other=0.0)
    tl.store(total_D + columns, tl.sum(total, 0).to(total_D.dtype.element_ty), mask=columns < D)


def fold(shares_PD: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum of all programs' shares (D)."""
    P, D = shares_PD.shape
    total_D = torch.empty(D, dtype=dtype, device=shares_PD.device)
    _fold[(triton.cdiv(D, _COLUMNS),)](shares_PD, total_D, P, D, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=8)
    return total_D

"""What several kernels use: early starts, sums over all tokens in two steps, masks for dropout that are not stored."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LOWEST = tl.constexpr(-1e30)
"""Below every score and logit, but finite: the difference of two infinities would be NaN."""
_ROWS, _COLUMNS = 128, 16


def programs_for(device: torch.device) -> int:
    """Number of programs of four warps that keeps a GPU busy: a few per multiprocessor, to hide latency."""
    if device.type != "cuda":
        return 2  # Triton's interpreter
    return 4 * torch.cuda.get_device_properties(device).multi_processor_count


def early(device: torch.device) -> dict[str, Any]:
    """Options that start a kernel while the one before it still runs (programmatic dependent launch), since Hopper."""
    is_possible = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return {"EARLY": True, "launch_pdl": True} if is_possible else {"EARLY": False}


def norm_sizes(D: int) -> dict[str, int]:
    """The sizes of a kernel that reads whole vectors."""
    D2 = triton.next_power_of_2(D)
    warps = 2 if D2 <= 512 else 4
    return {"D": D, "D2": D2, "ROWS": max(1, 512 * warps // D2), "num_warps": warps}


@triton.jit
def start_next(EARLY: tl.constexpr):
    """Let the next kernel start; until it waits for its inputs, it may read only what older steps have written."""
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait_for_inputs(EARLY: tl.constexpr):
    """Wait until all kernels before this one have written their outputs."""
    if EARLY:
        gdc_wait()


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


def draw_seeds(p: float, device: torch.device) -> Tensor:
    """Two random integers from torch's generator, so that masks depend on `torch.manual_seed`; unused if p is 0."""
    return torch.randint(1 << 31, (2,), device=device) if p else torch.empty(2, dtype=torch.int64, device=device)


@triton.jit
def dropout_scale(index, seeds, p):
    """The factor of each element: 0 with probability p, otherwise 1 / (1 - p).

    It depends on a hash of the element's index: two rounds of multiply and xor-shift (constants of the "lowbias32"
    hash), each preceded by a xor with one of the seeds.
    """
    x = index.to(tl.uint32) ^ tl.load(seeds).to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = x ^ tl.load(seeds + 1).to(tl.uint32)
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    return tl.where((x >> 8).to(tl.float32) * (1 / (1 << 24)) >= p, 1 / (1 - p), 0.0)

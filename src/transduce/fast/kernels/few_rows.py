"""A linear layer for few rows, such as the tokens of a step of search, without gradients, for CUDA: with its activation,
or with the residual connection and the norm after it.

With few rows, a step takes as long as its kernels wait for memory and for each other. This kernel starts while the one
before it still runs, and loads its first weights meanwhile; its tiles are so small that all processors take part.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.activation import activate_with_slope
from transduce.fast.kernels.common import early, wait_for_inputs

_MOST_ROWS, _MOST_OUTPUTS = 256, 1 << 19
"""The numbers of rows and of outputs up to which this is faster than the matrix products of torch, on an H200."""
_TILES = ((16, 32, 256), (64, 32, 128), (64, 64, 128))
"""Rows and columns of the output that a program computes, and columns of the input that it multiplies at once.

The first with which all programs run at the same time is taken.
"""


@triton.jit
def _product(
    x_RD, weight_FD, R, F, first, rows, columns, D: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """A tile of x W^T over BLOCKS blocks of the input, from block `first` on; weights are loaded before x is there."""
    k = first * BLOCK + tl.arange(0, BLOCK)
    vectors = x_RD + rows[:, None] * D + k[None, :]
    weights = weight_FD + columns[None, :].to(tl.int64) * D + k[:, None]
    in_rows, in_columns = (rows < R)[:, None], (columns < F)[None, :]
    weight = tl.load(weights, mask=in_columns & (k < D)[:, None], other=0.0)
    wait_for_inputs(EARLY)
    y = tl.dot(tl.load(vectors, mask=in_rows & (k < D)[None, :], other=0.0), weight, input_precision="ieee")
    for start in range(BLOCK, BLOCKS * BLOCK, BLOCK):
        weight = tl.load(weights + start, mask=in_columns & (start + k < D)[:, None], other=0.0)
        x = tl.load(vectors + start, mask=in_rows & (start + k < D)[None, :], other=0.0)
        y += tl.dot(x, weight, input_precision="ieee")
    return y


@triton.jit
def _few_rows_linear(
    x_RD, weight_FD, bias_F, y_RF, R, F, BIAS: tl.constexpr, KIND: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    bias = tl.load(bias_F + columns, mask=columns < F, other=0.0).to(tl.float32) if BIAS else 0.0
    y = _product(x_RD, weight_FD, R, F, 0, rows, columns, D, BLOCKS, BLOCK, EARLY) + bias
    if KIND != "none":
        y, _ = activate_with_slope(y, KIND)
    y_offsets = rows[:, None] * F + columns[None, :]
    tl.store(y_RF + y_offsets, y.to(y_RF.dtype.element_ty), mask=(rows < R)[:, None] & (columns < F)[None, :])


@triton.jit
def _few_rows_add_norm(
    x_RD, weight_FD, shortcut_RF, bias_F, gain_F, shift_F, parts_PRF, arrived, sum_RF, y_RF, R, epsilon,
    BIAS: tl.constexpr, RMS: tl.constexpr, D: tl.constexpr, F: tl.constexpr, F2: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, PARTS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(2)
    product = _product(x_RD, weight_FD, R, F, part * BLOCKS, rows, columns, D, BLOCKS, BLOCK, EARLY)
    offsets = rows[:, None] * F + columns[None, :]
    tl.store(parts_PRF + part * R * F + offsets, product, mask=(rows < R)[:, None] & (columns < F)[None, :])
    tl.debug_barrier()  # all warps have stored their numbers
    before = tl.atomic_add(arrived + tl.program_id(1), 1, sem="acq_rel")
    if before == tl.num_programs(0) * PARTS - 1:  # the last program of these rows
        tl.store(arrived + tl.program_id(1), 0)
        columns = tl.arange(0, F2)
        in_columns = columns < F
        offsets, inside = rows[:, None] * F + columns[None, :], (rows < R)[:, None] & in_columns[None, :]
        z = tl.load(shortcut_RF + offsets, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            z += tl.load(bias_F + columns, mask=in_columns, other=0.0).to(tl.float32)[None, :]
        for number in tl.static_range(PARTS):
            z += tl.load(parts_PRF + number * R * F + offsets, mask=inside, other=0.0, cache_modifier=".cg")
        z = z.to(sum_RF.dtype.element_ty)
        tl.store(sum_RF + offsets, z, mask=inside)
        z = z.to(tl.float32)
        mean = tl.zeros((ROWS,), tl.float32) if RMS else tl.sum(z, 1) / F
        centred = tl.where(inside, z - mean[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(centred * centred, 1) / F + epsilon)
        y = centred * scale[:, None] * tl.load(gain_F + columns, mask=in_columns, other=0.0).to(tl.float32)[None, :]
        if not RMS:
            y += tl.load(shift_F + columns, mask=in_columns, other=0.0).to(tl.float32)[None, :]
        tl.store(y_RF + offsets, y.to(y_RF.dtype.element_ty), mask=inside)


def suits(x_RD: Tensor, weight_FD: Tensor) -> bool:
    """Whether `few_rows_linear` is the fastest way to multiply these vectors by a matrix."""
    return len(x_RD) <= _MOST_ROWS and len(x_RD) * len(weight_FD) <= _MOST_OUTPUTS and not torch.is_grad_enabled()


def few_rows_linear(x_RD: Tensor, weight_FD: Tensor, bias_F: Tensor | None = None, activation: str = "none") -> Tensor:
    """activation(x W^T + b): (R, D) to (R, F); the activation must not be gated."""
    x_RD, (R, D), F = x_RD.contiguous(), x_RD.shape, len(weight_FD)
    rows, columns, block = _tile(x_RD, F)
    y_RF, block = x_RD.new_empty(R, F), min(block, max(triton.next_power_of_2(D), 16))
    _few_rows_linear[(triton.cdiv(F, columns), triton.cdiv(R, rows))](
        x_RD, weight_FD, weight_FD if bias_F is None else bias_F, y_RF, R, F, BIAS=bias_F is not None,
        KIND=activation, D=D, ROWS=rows, COLUMNS=columns, BLOCKS=triton.cdiv(D, block), BLOCK=block,
        num_warps=4, num_stages=4, **early(x_RD.device),
    )  # fmt: skip
    return y_RF


def few_rows_add_norm(
    x_RD: Tensor,
    weight_FD: Tensor,
    shortcut_RF: Tensor,
    bias_F: Tensor | None,
    gain_F: Tensor,
    shift_F: Tensor | None,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """norm(s) and s = shortcut + x W^T + b; RMSNorm if there is no shift.

    The last program that completes its part of some rows adds and normalizes them, so no other kernel has to start.
    """
    x_RD, shortcut_RF, (R, D), F = x_RD.contiguous(), shortcut_RF.contiguous(), x_RD.shape, len(weight_FD)
    rows, columns, block = _TILES[0]
    block, row_blocks, column_blocks = (
        min(block, max(triton.next_power_of_2(D), 16)),
        triton.cdiv(R, rows),
        triton.cdiv(F, columns),
    )
    blocks, parts = triton.cdiv(D, block), 1
    while blocks % 2 == 0 and 2 * parts * row_blocks * column_blocks <= _processors(x_RD.device):
        blocks, parts = blocks // 2, 2 * parts
    parts_PRF = x_RD.new_empty(parts, R, F, dtype=torch.float32)
    sum_RF, y_RF = torch.empty_like(shortcut_RF), torch.empty_like(shortcut_RF)
    _few_rows_add_norm[(column_blocks, row_blocks, parts)](
        x_RD, weight_FD, shortcut_RF, gain_F if bias_F is None else bias_F, gain_F,
        gain_F if shift_F is None else shift_F, parts_PRF, _counters(x_RD.device), sum_RF, y_RF, R, epsilon,
        BIAS=bias_F is not None, RMS=shift_F is None, D=D, F=F, F2=triton.next_power_of_2(F), ROWS=rows,
        COLUMNS=columns, PARTS=parts, BLOCKS=blocks, BLOCK=block, num_warps=4, num_stages=4, **early(x_RD.device),
    )  # fmt: skip
    return y_RF, sum_RF


def suits_add_norm(x_RD: Tensor, weight_FD: Tensor) -> bool:
    """Whether `few_rows_add_norm` is faster than the product and then the norm: all programs run at the same time."""
    rows, columns, _ = _TILES[0]
    programs = triton.cdiv(len(x_RD), rows) * triton.cdiv(len(weight_FD), columns)
    return suits(x_RD, weight_FD) and programs <= _processors(x_RD.device)


def _tile(x_RD: Tensor, F: int) -> tuple[int, int, int]:
    processors = _processors(x_RD.device)
    at_once = (tile for tile in _TILES if triton.cdiv(len(x_RD), tile[0]) * triton.cdiv(F, tile[1]) <= processors)
    return next(at_once, _TILES[-1])


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


@cache
def _counters(device: torch.device) -> Tensor:
    """For each block of rows, how many programs are done; the last one sets it to zero again."""
    return torch.zeros(_MOST_ROWS, dtype=torch.int32, device=device)

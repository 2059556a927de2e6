"""A linear layer with its activation for few rows, such as the tokens of a step of search, without gradients, for CUDA.

With few rows, a step takes as long as its kernels wait for memory and for each other. This kernel starts while the one
before it still runs, and loads its first weights meanwhile. Its tiles are so small that all processors take part; if
another kernel adds what it computes to something else, its programs divide the columns of the input as well.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.activation import activate_with_slope
from transduce.fast.kernels.common import early, start_next, wait_for_inputs

_MOST_PRODUCTS = 1 << 28
"""The number of multiplications up to which this is faster than the matrix products of torch, on an H200."""
_TILES = ((16, 32, 512, 3), (64, 32, 128, 4), (64, 64, 128, 4), (64, 64, 64, 4))
"""Rows and columns of the output that a program computes, columns of the input that it multiplies at once, and stages.

They fit into 99 KiB of shared memory, the least that a multiprocessor has since Ampere.
"""
_SHORTEST_PART = 256
"""The fewest columns of the input of a program if the programs divide them."""


@triton.jit
def _few_rows_linear(
    x_RD, weight_FD, bias_F, y_PRF, R, F, BIAS: tl.constexpr, KIND: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr,
    LATE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """With LATE, the next kernel starts only when the inputs are there: its programs would occupy the processors."""
    if not LATE:
        start_next(EARLY)
    rows, columns = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    in_rows, in_columns = (rows < R)[:, None], (columns < F)[None, :]
    k = tl.program_id(2) * PART + tl.arange(0, BLOCK)
    vectors = x_RD + rows[:, None] * D + k[None, :]
    weights = weight_FD + columns[None, :].to(tl.int64) * D + k[:, None]
    weight = tl.load(weights, mask=in_columns & (k < D)[:, None], other=0.0)
    bias = tl.load(bias_F + columns, mask=columns < F, other=0.0).to(tl.float32) if BIAS else 0.0
    wait_for_inputs(EARLY)
    if LATE:
        start_next(EARLY)
    y = tl.dot(tl.load(vectors, mask=in_rows & (k < D)[None, :], other=0.0), weight, input_precision="ieee")
    for start in range(BLOCK, PART, BLOCK):
        weight = tl.load(weights + start, mask=in_columns & (start + k < D)[:, None], other=0.0)
        x = tl.load(vectors + start, mask=in_rows & (start + k < D)[None, :], other=0.0)
        y += tl.dot(x, weight, input_precision="ieee")
    y += bias
    if KIND != "none":
        y, _ = activate_with_slope(y, KIND)
    y_offsets = (tl.program_id(2) * R + rows)[:, None] * F + columns[None, :]
    tl.store(y_PRF + y_offsets, y.to(y_PRF.dtype.element_ty), mask=in_rows & in_columns)


def suits(x_RD: Tensor, weight_FD: Tensor) -> bool:
    """Whether `few_rows_linear` is the fastest way to multiply these vectors by a matrix."""
    return len(x_RD) * weight_FD.numel() <= _MOST_PRODUCTS and not torch.is_grad_enabled()


def few_rows_linear(x_RD: Tensor, weight_FD: Tensor, bias_F: Tensor | None = None, activation: str = "none") -> Tensor:
    """activation(x W^T + b): (R, D) to (R, F); the activation must not be gated."""
    return _multiply(x_RD, weight_FD, bias_F, activation, in_parts=False)[0]


def few_rows_parts(x_RD: Tensor, weight_FD: Tensor) -> Tensor:
    """Terms (P, R, F) whose sum is x W^T, one for each part of the columns of x; `AddThenNorm` adds them."""
    return _multiply(x_RD, weight_FD, None, "none", in_parts=True)


def _multiply(x_RD: Tensor, weight_FD: Tensor, bias_F: Tensor | None, activation: str, in_parts: bool) -> Tensor:
    x_RD, (R, D), F = x_RD.contiguous(), x_RD.shape, len(weight_FD)
    rows, columns, block, stages, parts = _sizes(x_RD, F, in_parts)
    part = triton.cdiv(D, parts * block) * block
    y_PRF = x_RD.new_empty(triton.cdiv(D, part), R, F, dtype=x_RD.dtype if part >= D else torch.float32)
    _few_rows_linear[(triton.cdiv(F, columns), triton.cdiv(R, rows), len(y_PRF))](
        x_RD, weight_FD, weight_FD if bias_F is None else bias_F, y_PRF, R, F, BIAS=bias_F is not None,
        KIND=activation, D=D, ROWS=rows, COLUMNS=columns, PART=part, BLOCK=block,
        LATE=in_parts or activation != "none", num_warps=4, num_stages=stages, **early(x_RD.device),
    )  # fmt: skip
    return y_PRF


def _sizes(x_RD: Tensor, F: int, in_parts: bool) -> tuple[int, int, int, int, int]:
    """The tile, and the number of parts, with which all programs run at once and load the fewest numbers each."""
    (R, D), found = x_RD.shape, []
    processors = torch.cuda.get_device_properties(x_RD.device).multi_processor_count if x_RD.is_cuda else 4
    for rows, columns, block, stages in _TILES:
        programs, parts = triton.cdiv(R, rows) * triton.cdiv(F, columns), 1
        while in_parts and 2 * parts <= min(processors // programs, D // _SHORTEST_PART):
            parts *= 2
        block = _SHORTEST_PART if D // parts == _SHORTEST_PART else min(block, max(triton.next_power_of_2(D), 16))
        while block > 64 and D % block:
            block //= 2
        found.append((programs > processors, (rows + columns) * D // parts, (rows, columns, block, stages, parts)))
    return min(found)[-1]

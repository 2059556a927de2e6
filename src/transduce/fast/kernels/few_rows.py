"""A linear layer with its activation for few rows, such as the tokens of a step of search, without gradients, for CUDA.

With few rows, a step takes as long as its kernels wait for memory and for each other. This kernel starts while the one
before it still runs, and loads its first weights meanwhile; its tiles are so small that all processors take part.
"""

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
def _few_rows_linear(
    x_RD, weight_FD, bias_F, y_RF, R, F, BIAS: tl.constexpr, KIND: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    in_rows, in_columns, k = (rows < R)[:, None], (columns < F)[None, :], tl.arange(0, BLOCK)
    vectors = x_RD + rows[:, None] * D + k[None, :]
    weights = weight_FD + columns[None, :].to(tl.int64) * D + k[:, None]
    weight = tl.load(weights, mask=in_columns & (k < D)[:, None], other=0.0)
    bias = tl.load(bias_F + columns, mask=columns < F, other=0.0).to(tl.float32) if BIAS else 0.0
    wait_for_inputs(EARLY)
    y = tl.dot(tl.load(vectors, mask=in_rows & (k < D)[None, :], other=0.0), weight, input_precision="ieee")
    for start in range(BLOCK, D, BLOCK):
        weight = tl.load(weights + start, mask=in_columns & (start + k < D)[:, None], other=0.0)
        x = tl.load(vectors + start, mask=in_rows & (start + k < D)[None, :], other=0.0)
        y += tl.dot(x, weight, input_precision="ieee")
    y += bias
    if KIND != "none":
        y, _ = activate_with_slope(y, KIND)
    y_offsets = rows[:, None] * F + columns[None, :]
    tl.store(y_RF + y_offsets, y.to(y_RF.dtype.element_ty), mask=in_rows & in_columns)


def suits(x_RD: Tensor, weight_FD: Tensor) -> bool:
    """Whether `few_rows_linear` is the fastest way to multiply these vectors by a matrix."""
    return len(x_RD) <= _MOST_ROWS and len(x_RD) * len(weight_FD) <= _MOST_OUTPUTS and not torch.is_grad_enabled()


def few_rows_linear(x_RD: Tensor, weight_FD: Tensor, bias_F: Tensor | None = None, activation: str = "none") -> Tensor:
    """activation(x W^T + b): (R, D) to (R, F); the activation must not be gated."""
    x_RD, (R, D), F = x_RD.contiguous(), x_RD.shape, len(weight_FD)
    processors = torch.cuda.get_device_properties(x_RD.device).multi_processor_count if x_RD.is_cuda else 1
    at_once = (tile for tile in _TILES if triton.cdiv(R, tile[0]) * triton.cdiv(F, tile[1]) <= processors)
    rows, columns, block = next(at_once, _TILES[-1])
    y_RF = x_RD.new_empty(R, F)
    _few_rows_linear[(triton.cdiv(F, columns), triton.cdiv(R, rows))](
        x_RD, weight_FD, weight_FD if bias_F is None else bias_F, y_RF, R, F, BIAS=bias_F is not None,
        KIND=activation, D=D, ROWS=rows, COLUMNS=columns, BLOCK=min(block, max(triton.next_power_of_2(D), 16)),
        num_warps=4, num_stages=4, **early(x_RD.device),
    )  # fmt: skip
    return y_RF

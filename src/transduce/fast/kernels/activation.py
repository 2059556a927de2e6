"""A linear layer followed by GELU or Swish, gated or not: the activation and its gradient take one pass each (CUDA)."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.common import programs_for, sum_partials
from transduce.nn.feed_forward import GATED

_ROWS, _COLUMNS = 32, 128


@triton.jit
def activate_with_slope(x, KIND: tl.constexpr):
    """The activation and its derivative."""
    if KIND == "relu":
        return tl.maximum(x, 0.0), tl.where(x > 0, 1.0, 0.0)
    if KIND == "gelu":
        area = 0.5 * (1 + tl.erf(x * 0.7071067811865476))
        return x * area, area + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    if KIND == "gelu_tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        tanh = 2 * tl.sigmoid(2 * inner) - 1
        slope = 0.7978845608028654 * (1 + 0.134145 * x * x)
        return 0.5 * x * (1 + tanh), 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * slope
    sigmoid = tl.sigmoid(x)
    return x * sigmoid, sigmoid * (1 + x * (1 - sigmoid))


@triton.jit
def _forward(
    x_NX, y_NF, tokens, F, KIND: tl.constexpr, GATED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (rows < tokens)[:, None] & (columns < F)[None, :]
    width = 2 * F if GATED else F
    x_offsets = rows[:, None].to(tl.int64) * width + columns[None, :]
    y, _ = activate_with_slope(tl.load(x_NX + x_offsets, mask=inside, other=0.0).to(tl.float32), KIND)
    if GATED:
        y *= tl.load(x_NX + x_offsets + F, mask=inside, other=0.0).to(tl.float32)
    y_offsets = rows[:, None].to(tl.int64) * F + columns[None, :]
    tl.store(y_NF + y_offsets, y.to(y_NF.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    dy_NF, x_NX, dx_NX, partials_PX, tokens, F,
    KIND: tl.constexpr, GATED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    width = 2 * F if GATED else F
    sums, gated_sums = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, tokens, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < tokens)[:, None] & (columns < F)[None, :]
        x_offsets = rows[:, None].to(tl.int64) * width + columns[None, :]
        dy = tl.load(dy_NF + rows[:, None].to(tl.int64) * F + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        y, slope = activate_with_slope(tl.load(x_NX + x_offsets, mask=inside, other=0.0).to(tl.float32), KIND)
        dx = dy * slope
        if GATED:
            dx *= tl.load(x_NX + x_offsets + F, mask=inside, other=0.0).to(tl.float32)
            dgated = dy * y
            tl.store(dx_NX + x_offsets + F, dgated.to(dx_NX.dtype.element_ty), mask=inside)
            gated_sums += dgated
        tl.store(dx_NX + x_offsets, dx.to(dx_NX.dtype.element_ty), mask=inside)
        sums += dx
    partial = partials_PX + tl.program_id(0) * width + columns
    tl.store(partial, tl.sum(sums, 0), mask=columns < F)
    if GATED:
        tl.store(partial + F, tl.sum(gated_sums, 0), mask=columns < F)


def activate(pre_NX: Tensor, kind: str) -> Tensor:
    """The activation (N, F), or with a gated one the activated first half times the second half."""
    N, width = pre_NX.shape
    F = width // 2 if kind in GATED else width
    y_NF = pre_NX.new_empty(N, F)
    _forward[(triton.cdiv(N, _ROWS), triton.cdiv(F, _COLUMNS))](
        pre_NX, y_NF, N, F,
        KIND=GATED.get(kind, kind), GATED=kind in GATED, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=4,
    )  # fmt: skip
    return y_NF


def activation_gradient(dy_NF: Tensor, pre_NX: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """The gradient of `activate`'s input, and its sum over all rows in several parts."""
    dy_NF, (N, F) = dy_NF.contiguous(), dy_NF.shape
    dpre_NX, column_blocks = torch.empty_like(pre_NX), triton.cdiv(F, _COLUMNS)
    programs = max(1, min(programs_for(dy_NF.device) // column_blocks, triton.cdiv(N, _ROWS)))
    partials_PX = torch.empty(programs, pre_NX.shape[1], dtype=torch.float32, device=dy_NF.device)
    _backward[(programs, column_blocks)](
        dy_NF, pre_NX, dpre_NX, partials_PX, N, F,
        KIND=GATED.get(kind, kind), GATED=kind in GATED, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=4,
    )  # fmt: skip
    return dpre_NX, partials_PX


class Activation(torch.autograd.Function):
    """See `activate`."""

    @staticmethod
    def forward(ctx: Any, pre_NX: Tensor, kind: str) -> Tensor:
        """(N, X) to (N, F)."""
        ctx.save_for_backward(pre_NX)
        ctx.kind = kind
        return activate(pre_NX, kind)

    @staticmethod
    def backward(ctx: Any, dy_NF: Tensor) -> Any:
        """The gradient of the input."""
        (pre_NX,) = ctx.saved_tensors
        return activation_gradient(dy_NF, pre_NX, ctx.kind)[0], None


class LinearActivation(torch.autograd.Function):
    """activate(x W^T + b); the gradient of the bias needs no pass of its own."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_XD: Tensor, bias_X: Tensor | None, kind: str) -> Tensor:
        """(N, D) to (N, F)."""
        pre_NX = x_ND @ weight_XD.t() if bias_X is None else torch.addmm(bias_X, x_ND, weight_XD.t())
        ctx.save_for_backward(x_ND, weight_XD, pre_NX)
        ctx.kind, ctx.bias_dtype = kind, None if bias_X is None else bias_X.dtype
        return activate(pre_NX, kind)

    @staticmethod
    def backward(ctx: Any, dy_NF: Tensor) -> Any:
        """The gradients of x, weight and bias."""
        x_ND, weight_XD, pre_NX = ctx.saved_tensors
        dpre_NX, partials_PX = activation_gradient(dy_NF, pre_NX, ctx.kind)
        dbias_X = None if ctx.bias_dtype is None else sum_partials(partials_PX, ctx.bias_dtype)
        return dpre_NX @ weight_XD, dpre_NX.t() @ x_ND, dbias_X, None

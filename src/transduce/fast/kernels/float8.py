"""Linear layers whose three products are in 8-bit floating point (FP8), for training on recent NVIDIA GPUs.

Vectors and weights are e4m3 (3 bits of mantissa), gradients e5m2 (2 bits, wider range). Each tensor has one scale, a
power of two, that follows from its largest magnitude in the step before (delayed scaling). So it is rounded in one pass
over memory, which also transposes it, because a product needs both of its sides along the summed dimension. Results of
products are bfloat16; weights and their updates stay float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.activation import activate_with_slope
from transduce.fast.kernels.common import programs_for, sum_partials
from transduce.nn.loss import Products

_PAIRS, _COLUMNS = 32, 64
"""Pairs of rows, and columns, that a program rounds at once."""
_WARPS, _PROGRAMS = 4, 4
_VALUES, _GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
_ALIGNMENT = 16
"""Products in 8 bits need dimensions that are multiples of this."""
_NARROWEST = 400
"""Harmonic mean of a matrix's width and height, halved, from which products gain more than rounding costs (an H200)."""


@triton.jit
def _tile(x_ND, pre_ND, rows, columns, N, D, KIND: tl.constexpr, GRADIENT: tl.constexpr):
    """Some rows and columns of what is rounded, their places in memory, and which of them exist."""
    offsets = rows[:, None].to(tl.int64) * D + columns[None, :]
    inside = (rows < N)[:, None] & (columns < D)[None, :]
    x = tl.load(x_ND + offsets, mask=inside, other=0.0).to(tl.float32)
    if KIND != "none":
        if GRADIENT:
            _, slope = activate_with_slope(tl.load(pre_ND + offsets, mask=inside, other=0.0).to(tl.float32), KIND)
            x *= slope
        else:
            x, _ = activate_with_slope(x, KIND)
    return x, offsets, inside


@triton.jit
def _pairs(even, odd, dtype: tl.constexpr, COMPILED: tl.constexpr):
    """Rounded numbers of two rows as 16 bits each, so that they are transposed together.

    The instruction that rounds a pair is written out: a result that is taken apart again is wrong (Triton 3.6, H200).
    """
    if COMPILED:
        name: tl.constexpr = "e5m2x2" if dtype == tl.float8e5 else "e4m3x2"
        code: tl.constexpr = "cvt.rn.satfinite." + name + ".f32 $0, $2, $1;"
        return tl.inline_asm_elementwise(code, "=h,r,r", [even, odd], dtype=tl.int16, is_pure=True, pack=1)
    low, high = even.to(dtype).to(tl.uint8, bitcast=True), odd.to(dtype).to(tl.uint8, bitcast=True)
    return low.to(tl.int16) | (high.to(tl.int16) << 8)


@triton.jit
def _round(
    x_ND, pre_ND, rows_ND, pairs_DM, partials_PD, previous, current, inverse, N, M, D,
    KIND: tl.constexpr, GRADIENT: tl.constexpr, SUMS: tl.constexpr, LIMIT: tl.constexpr,
    COMPILED: tl.constexpr, PAIRS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    before = tl.load(previous)
    is_usable = (before > 0) & (before < 1e30)
    # Twice the magnitude of the step before fits, and at most four times it.
    scale = tl.where(is_usable, tl.exp2(tl.floor(tl.log2(LIMIT / tl.where(is_usable, before, 1.0))) - 1), 1.0)
    if tl.program_id(0) + tl.program_id(1) == 0:
        tl.store(inverse, 1 / scale)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    largest, sums = tl.zeros((PAIRS, COLUMNS), tl.float32), tl.zeros((PAIRS, COLUMNS), tl.float32)
    dtype: tl.constexpr = rows_ND.dtype.element_ty
    for start in range(tl.program_id(0) * PAIRS, M // 2, tl.num_programs(0) * PAIRS):
        pairs = start + tl.arange(0, PAIRS)
        even, even_offsets, even_inside = _tile(x_ND, pre_ND, 2 * pairs, columns, N, D, KIND, GRADIENT)
        odd, odd_offsets, odd_inside = _tile(x_ND, pre_ND, 2 * pairs + 1, columns, N, D, KIND, GRADIENT)
        if SUMS:
            sums += even + odd
        largest = tl.maximum(largest, tl.maximum(tl.abs(even), tl.abs(odd)))
        even, odd = tl.clamp(even * scale, -LIMIT, LIMIT), tl.clamp(odd * scale, -LIMIT, LIMIT)
        tl.store(rows_ND + even_offsets, even.to(dtype), mask=even_inside)
        tl.store(rows_ND + odd_offsets, odd.to(dtype), mask=odd_inside)
        transposed = columns[:, None].to(tl.int64) * (M // 2) + pairs[None, :]
        exists = (columns < D)[:, None] & (pairs < M // 2)[None, :]
        tl.store(pairs_DM + transposed, tl.trans(_pairs(even, odd, dtype, COMPILED)), mask=exists)
    tl.atomic_max(current, tl.max(tl.max(largest, 1), 0))
    if SUMS:
        tl.store(partials_PD + tl.program_id(0) * D + columns, tl.sum(sums, 0), mask=columns < D)


@dataclass(frozen=True)
class Site:
    """What is kept of a tensor that is rounded in every step, one number each: magnitudes, and its inverse scale."""

    previous: Tensor
    current: Tensor
    inverse: Tensor


@dataclass(frozen=True)
class Sites:
    """The three tensors of a linear layer that are rounded."""

    vectors: Site
    weight: Site
    gradient: Site


class Float8Scales:
    """The scales of all linear layers of a model, which are assigned to its modules as `float8`."""

    def __init__(self, count: int, device: torch.device) -> None:
        # Each number at an address of its own alignment.
        self._numbers = torch.zeros(3, 3 * count, 4, device=device)
        self.largest = self._numbers[1, :, 0]
        """The largest magnitudes of the last step, which the scales of the next one follow from."""

    def sites(self, number: int) -> Sites:
        """The sites of a layer."""
        return Sites(*(Site(*self._numbers[:, 3 * number + i, :1]) for i in range(3)))

    def begin(self) -> None:
        """Begin a step."""
        self._numbers[0].copy_(self._numbers[1])
        self._numbers[1].zero_()

    def repeat(self) -> None:
        """Forget the magnitudes of a step that will be computed again, unless there were none before it."""
        previous, current = self._numbers[0], self._numbers[1]
        current.copy_(torch.where(previous > 0, previous, current))


def suits_float8(weight_FD: Tensor) -> bool:
    """Whether products with this matrix can be in 8 bits, and gain by it."""
    F, D = weight_FD.shape
    return F % _ALIGNMENT == D % _ALIGNMENT == 0 and F * D >= _NARROWEST * (F + D)


@dataclass(frozen=True)
class _Rounded:
    """A tensor in 8 bits, row by row (N, D) and transposed (D, M); M is N, rounded up, and added numbers are 0."""

    rows_ND: Tensor
    columns_DM: Tensor
    inverse: Tensor
    sums_D: Tensor | None


def _rounded(
    x_ND: Tensor,
    site: Site,
    dtype: torch.dtype = _VALUES,
    *,
    kind: str = "none",
    pre_ND: Tensor | None = None,
    sums: bool = False,
) -> _Rounded:
    """x in 8 bits; first, its activation, or with `pre_ND`, what that was before it, the gradient of that."""
    x_ND, (N, D) = x_ND.contiguous(), x_ND.shape
    M = -(-N // _ALIGNMENT) * _ALIGNMENT
    rows_ND, columns_DM = (x_ND.new_empty(*shape, dtype=dtype) for shape in ((N, D), (D, M)))
    blocks = triton.cdiv(D, _COLUMNS)
    programs = max(1, min(_PROGRAMS * programs_for(x_ND.device) // blocks, triton.cdiv(M, 2 * _PAIRS)))
    partials_PD = torch.empty(programs if sums else 0, D, dtype=torch.float32, device=x_ND.device)
    _round[(programs, blocks)](
        x_ND, x_ND if pre_ND is None else pre_ND, rows_ND, columns_DM.view(torch.int16), partials_PD, site.previous,
        site.current, site.inverse, N, M, D, KIND=kind, GRADIENT=pre_ND is not None, SUMS=sums,
        LIMIT=torch.finfo(dtype).max, COMPILED=x_ND.is_cuda, PAIRS=_PAIRS, COLUMNS=_COLUMNS, num_warps=_WARPS,
    )  # fmt: skip
    return _Rounded(rows_ND, columns_DM, site.inverse, sum_partials(partials_PD, x_ND.dtype) if sums else None)


def _multiply(
    a_NK: Tensor, b_MK: Tensor, scales: tuple[Tensor, Tensor], dtype: torch.dtype, bias_M: Tensor | None = None,
    *, fast: bool = False,
) -> Tensor:  # fmt: skip
    """a b^T + bias; `fast` sums with fewer bits, which is enough for vectors, but not for gradients."""
    return torch._scaled_mm(a_NK, b_MK.t(), *scales, bias=bias_M, out_dtype=dtype, use_fast_accum=fast)


class Float8Linear(torch.autograd.Function):
    """x W^T + b."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor | None, sites: Sites) -> Tensor:
        """(N, D) to (N, F)."""
        x, weight = _rounded(x_ND, sites.vectors), _rounded(weight_FD, sites.weight)
        ctx.save_for_backward(x.columns_DM, x.inverse, weight.columns_DM, weight.inverse)
        ctx.sites, ctx.has_bias = sites, bias_F is not None
        return _multiply(x.rows_ND, weight.rows_ND, (x.inverse, weight.inverse), x_ND.dtype, bias_F, fast=True)

    @staticmethod
    def backward(ctx: Any, dy_NF: Tensor) -> Any:
        """The gradients of x, weight and bias."""
        dy = _rounded(dy_NF, ctx.sites.gradient, _GRADIENTS, sums=ctx.has_bias)
        return *_gradients(dy, ctx.saved_tensors, dy_NF.dtype), dy.sums_D, None


class Float8FeedForward(torch.autograd.Function):
    """activation(x W1^T + b1) W2^T."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        inner_FD: Tensor,
        bias_F: Tensor | None,
        outer_DF: Tensor,
        kind: str,
        sites: tuple[Sites, Sites],
    ) -> Tensor:
        """(N, D) to (N, D)."""
        x, inner, outer = (
            _rounded(matrix, site)
            for matrix, site in ((x_ND, sites[0].vectors), (inner_FD, sites[0].weight), (outer_DF, sites[1].weight))
        )
        dtype = x_ND.dtype
        pre_NF = _multiply(x.rows_ND, inner.rows_ND, (x.inverse, inner.inverse), dtype, bias_F, fast=True)
        y = _rounded(pre_NF, sites[1].vectors, kind=kind)
        kept = ((z.columns_DM, z.inverse) for z in (x, inner, y, outer))
        ctx.save_for_backward(pre_NF, *(tensor for pair in kept for tensor in pair))
        ctx.kind, ctx.sites, ctx.has_bias = kind, sites, bias_F is not None
        return _multiply(y.rows_ND, outer.rows_ND, (y.inverse, outer.inverse), dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, dz_ND: Tensor) -> Any:
        """The gradients of x and of what is trained."""
        pre_NF, *saved = ctx.saved_tensors
        dz = _rounded(dz_ND, ctx.sites[1].gradient, _GRADIENTS)
        dy_NF, douter_DF = _gradients(dz, saved[4:], dz_ND.dtype)
        dpre = _rounded(dy_NF, ctx.sites[0].gradient, _GRADIENTS, kind=ctx.kind, pre_ND=pre_NF, sums=ctx.has_bias)
        return *_gradients(dpre, saved[:4], dz_ND.dtype), dpre.sums_D, douter_DF, None, None


class Float8Output(Products):
    """The products of hidden vectors and the output matrix."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._weight: _Rounded | None = None

    def logits(self, hidden_LD: Tensor, weight_VD: Tensor) -> Tensor:
        """Also keeps what the gradients need."""
        self._weight = self._weight or _rounded(weight_VD, self._sites.weight)
        hidden = self._hidden = _rounded(hidden_LD, self._sites.vectors)
        scales = hidden.inverse, self._weight.inverse
        return _multiply(hidden.rows_ND, self._weight.rows_ND, scales, hidden_LD.dtype, fast=True)

    def hidden_gradient(self, grad_LV: Tensor, weight_VD: Tensor) -> Tensor:
        """Also keeps the rounded gradient of the logits."""
        grad, weight = _rounded(grad_LV, self._sites.gradient, _GRADIENTS), self._weight
        assert weight is not None
        self._grad = grad
        return _multiply(grad.rows_ND, weight.columns_DM, (grad.inverse, weight.inverse), grad_LV.dtype)

    def weight_gradient(self, grad_LV: Tensor, hidden_LD: Tensor) -> Tensor:
        """Called after `hidden_gradient`."""
        grad, hidden = self._grad, self._hidden
        return _multiply(grad.columns_DM, hidden.columns_DM, (grad.inverse, hidden.inverse), grad_LV.dtype)


def _gradients(dy: _Rounded, saved: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The gradients of x and weight, from what was saved: both, transposed, and their inverse scales."""
    x_DM, x_inverse, weight_DF, weight_inverse = saved
    dx_ND = _multiply(dy.rows_ND, weight_DF, (dy.inverse, weight_inverse), dtype)
    return dx_ND, _multiply(dy.columns_DM, x_DM, (dy.inverse, x_inverse), dtype)

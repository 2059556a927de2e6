"""Rotary positions of the queries and keys of one projection, in place and in one pass over memory, for CUDA."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_ELEMENTS = 1024
"""Pairs of numbers that a program rotates, about."""


@triton.jit
def _rotate(
    joint_ND, position_N, waves_TK, heads, row_stride, sign,
    HALF: tl.constexpr, HALF_2: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    row, pair = tl.program_id(0).to(tl.int64), tl.arange(0, HALF_2)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    inside = (head < heads)[:, None] & (pair < HALF)[None, :]
    wave = waves_TK + tl.load(position_N + row) * (2 * HALF) + pair
    cosine = tl.load(wave, mask=pair < HALF, other=0.0)[None, :]
    sine = tl.load(wave + HALF, mask=pair < HALF, other=0.0)[None, :] * sign
    pointers = joint_ND + row * row_stride + head[:, None] * (2 * HALF) + pair[None, :]
    first = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(pointers + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(pointers, (first * cosine - second * sine).to(joint_ND.dtype.element_ty), mask=inside)
    tl.store(pointers + HALF, (second * cosine + first * sine).to(joint_ND.dtype.element_ty), mask=inside)


class RotateHeads(torch.autograd.Function):
    """`nn.positions.Rotary` of the first heads of each row, which are its queries and keys.

    The gradient is rotated back in place: it is that of `split_adjacent_heads`, which nobody else reads.
    """

    @staticmethod
    def forward(ctx: Any, joint_ND: Tensor, position_N: Tensor, waves_TK: Tensor, heads: int) -> Tensor:
        """(N, D) with `heads` times K columns to be rotated, in place."""
        ctx.save_for_backward(position_N, waves_TK)
        ctx.heads = heads
        ctx.mark_dirty(joint_ND)
        _launch(joint_ND, position_N, waves_TK, heads, 1.0)
        return joint_ND

    @staticmethod
    def backward(ctx: Any, gradient_ND: Tensor) -> Any:
        """The gradient of the projection."""
        position_N, waves_TK = ctx.saved_tensors
        _launch(gradient_ND, position_N, waves_TK, ctx.heads, -1.0)
        return gradient_ND, None, None, None


def _launch(joint_ND: Tensor, position_N: Tensor, waves_TK: Tensor, heads: int, sign: float) -> None:
    half = waves_TK.shape[1] // 2
    half_2 = triton.next_power_of_2(half)
    per_program = min(triton.next_power_of_2(heads), max(1, _ELEMENTS // half_2))
    assert joint_ND.stride(1) == 1
    _rotate[(len(joint_ND), triton.cdiv(heads, per_program))](
        joint_ND, position_N, waves_TK, heads, joint_ND.stride(0), sign,
        HALF=half, HALF_2=half_2, HEADS=per_program, num_warps=4,
    )  # fmt: skip

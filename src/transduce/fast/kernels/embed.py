"""Dropout(E[token] * scale + P[position]) in one pass over memory, for CUDA; returned twice, as in `add_norm`."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.fast.kernels.common import draw_seeds, dropout_scale

_ROWS = 2


@triton.jit
def _embed_forward(
    token_N, position_N, weight_VD, table_TD, seeds, y_ND, tokens, scale, p,
    D: tl.constexpr, D2: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D2)
    inside = (rows < tokens)[:, None] & (columns < D)[None, :]
    token = tl.load(token_N + rows, mask=rows < tokens, other=0).to(tl.int64)
    position = tl.load(position_N + rows, mask=rows < tokens, other=0)
    embedding = tl.load(weight_VD + token[:, None] * D + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    encoding = tl.load(table_TD + position[:, None] * D + columns[None, :], mask=inside, other=0.0)
    offsets = rows[:, None] * D + columns[None, :]
    y = (embedding * scale + encoding) * dropout_scale(offsets, seeds, p)
    tl.store(y_ND + offsets, y.to(y_ND.dtype.element_ty), mask=inside)


@triton.jit
def _embed_backward(dy_ND, dy_shortcut_ND, seeds, dembedding_ND, size, scale, p, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ND + offsets, mask=offsets < size, other=0.0).to(tl.float32)
    dy += tl.load(dy_shortcut_ND + offsets, mask=offsets < size, other=0.0).to(tl.float32)
    dembedding = dy * dropout_scale(offsets, seeds, p) * scale
    tl.store(dembedding_ND + offsets, dembedding.to(dembedding_ND.dtype.element_ty), mask=offsets < size)


class Embed(torch.autograd.Function):
    """Token and position vectors summed, with dropout, returned twice."""

    @staticmethod
    def forward(
        ctx: Any, token_N: Tensor, position_N: Tensor, weight_VD: Tensor, table_TD: Tensor, scale: float, p: float
    ) -> tuple[Tensor, Tensor]:
        """(N) tokens at (N) positions to two outputs (N, D) with the same values."""
        N, D = len(token_N), weight_VD.shape[1]
        seeds = draw_seeds(p, weight_VD.device)
        y_ND = weight_VD.new_empty(N, D)
        _embed_forward[(triton.cdiv(N, _ROWS),)](
            token_N, position_N, weight_VD, table_TD, seeds, y_ND, N, scale, p,
            D=D, D2=triton.next_power_of_2(D), ROWS=_ROWS, num_warps=2,
        )  # fmt: skip
        ctx.save_for_backward(token_N, seeds)
        ctx.vocab_size, ctx.scale, ctx.p = len(weight_VD), scale, p
        return y_ND, y_ND.view_as(y_ND)

    @staticmethod
    def backward(ctx: Any, dy_ND: Tensor, dy_shortcut_ND: Tensor) -> Any:
        """The gradient of the embedding matrix."""
        token_N, seeds = ctx.saved_tensors
        dy_ND, dy_shortcut_ND = dy_ND.contiguous(), dy_shortcut_ND.contiguous()
        dembedding_ND, block = torch.empty_like(dy_ND), 1024
        _embed_backward[(triton.cdiv(dy_ND.numel(), block),)](
            dy_ND, dy_shortcut_ND, seeds, dembedding_ND, dy_ND.numel(), ctx.scale, ctx.p, BLOCK=block
        )
        dweight_VD = torch.ops.aten.embedding_dense_backward(dembedding_ND, token_N.int(), ctx.vocab_size, -1, False)
        return None, None, dweight_VD, None, None, None

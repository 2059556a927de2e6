"""Rows of a table: embeddings of tokens and positions."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def lookup(index: Tensor, table_VD: Tensor) -> Tensor:
    """F.embedding(index, table_VD), whose gradient is a sum over equal indices.

    On a CPU, torch sums the gradients of a bfloat16 table in bfloat16, in which the sum of a frequent token stops
    growing; here they are summed in float32.
    """
    if table_VD.device.type == "cpu" and table_VD.dtype == torch.bfloat16 and table_VD.requires_grad:
        rows: Tensor = _Lookup.apply(index, table_VD)  # type: ignore[no-untyped-call]
        return rows
    return F.embedding(index, table_VD)


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, index: Tensor, table_VD: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = len(table_VD)
        return F.embedding(index, table_VD)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (index,) = ctx.saved_tensors
        # The gradient of F.embedding itself, which is deterministic; no index is padding.
        sums_VD = torch.ops.aten.embedding_dense_backward(grad.float(), index, ctx.rows, -1, False)
        return None, sums_VD.to(grad.dtype)

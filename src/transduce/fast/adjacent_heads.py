"""Queries, keys and values that are split from one projection, and their gradients, adjacent in memory as well."""

from typing import Any

import torch
from torch import Tensor


def split_adjacent_heads(joint_ND: Tensor, *shapes: tuple[int, int]) -> tuple[Tensor, ...]:
    """`split_heads`, whose gradient needs no copy if the gradients of the parts are adjacent in memory.

    Autograd's gradient of a split copies the gradients of the parts into one matrix; kernels allocate
    them side by side (`empty_adjacent`).
    """
    return _SplitHeads.apply(joint_ND, shapes)  # type: ignore[no-untyped-call]


class _SplitHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, joint_ND: Tensor, shapes: tuple[tuple[int, int], ...]) -> tuple[Tensor, ...]:
        parts = joint_ND.split([heads * width for heads, width in shapes], dim=1)
        return tuple(part.view(-1, *shape) for part, shape in zip(parts, shapes, strict=True))

    @staticmethod
    def backward(ctx: Any, *parts: Tensor) -> Any:
        first, width = parts[0], sum(part.shape[1] * part.shape[2] for part in parts)
        expected = first.storage_offset()
        for part in parts:
            same_memory = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
            rows_apart = part.stride() == (width, part.shape[2], 1)
            if not (same_memory and rows_apart and part.storage_offset() == expected):
                return torch.cat([part.flatten(1) for part in parts], dim=1), None
            expected += part.shape[1] * part.shape[2]
        return first.as_strided((len(first), width), (width, 1)), None


def empty_adjacent(*parts_NHK: Tensor) -> list[Tensor]:
    """Uninitialised gradients; those of parts that were split from one projection are adjacent in memory."""
    gradients: list[Tensor] = []
    neighbours: list[Tensor] = []
    for part, following in zip(parts_NHK, [*parts_NHK[1:], None], strict=True):
        neighbours.append(part)
        if following is None or following.untyped_storage().data_ptr() != part.untyped_storage().data_ptr():
            widths = [x.shape[1] * x.shape[2] for x in neighbours]
            columns = part.new_empty(len(part), sum(widths)).split(widths, dim=1)
            gradients += [c.view(x.shape) for c, x in zip(columns, neighbours, strict=True)]
            neighbours = []
    return gradients

"""Ablation of attention heads in a copy of the model that shares its weights."""

import copy
from collections import OrderedDict
from collections.abc import Iterable
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import nn

from transduce.nn.multi_head_attention import CrossAttention, SelfAttention

M = TypeVar("M", bound=nn.Module)


def sharing_copy(model: M) -> M:
    """A copy of the modules that shares the weights, so that hooks on one do not run for the other."""
    memo: dict[int, Any] = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    for module in model.modules():
        memo[id(module._forward_hooks)] = OrderedDict()  # another thread may have hooks on the original at this moment
    return copy.deepcopy(model, memo)


@torch.no_grad()
def without_heads(model: M, heads: Iterable[tuple[str, int]]) -> M:
    """A sharing copy in which these heads (name of the attention module, index of the head) contribute nothing.

    A head's output passes through its columns of W^O; in the copy these are zero.
    """
    ablated = sharing_copy(model)
    for name, head in heads:
        attention = ablated.get_submodule(name)
        assert isinstance(attention, SelfAttention | CrossAttention)
        weight, d_v = attention.out.weight.clone(), attention.heads.d_v
        weight[:, head * d_v : (head + 1) * d_v] = 0
        attention.out.weight = nn.Parameter(weight, requires_grad=False)
    return ablated

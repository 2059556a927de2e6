"""Modules whose weights are about to be read."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_DRAWS = (torch.Tensor.uniform_, nn.init.uniform_, nn.init.kaiming_uniform_)


class Unfilled(TorchFunctionMode):
    """Inside, nothing is drawn at random: it would take longer than reading what replaces it."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called in place of torch's functions."""
        if func in _DRAWS:
            return None
        return (torch.empty if func is torch.randn else func)(*args, **(kwargs or {}))

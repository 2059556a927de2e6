"""Creating modules without initialising weights that are about to be loaded."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_DRAWS = (torch.Tensor.uniform_, nn.init.uniform_, nn.init.kaiming_uniform_)


class SkipInitialization(TorchFunctionMode):
    """A context in which random initialisation is skipped, as it takes longer than loading the weights."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called instead of torch's functions."""
        if func in _DRAWS:
            return None
        return (torch.empty if func is torch.randn else func)(*args, **(kwargs or {}))

"""Recording attention weights and hidden states of a forward pass with hooks, outside the model's code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn


@runtime_checkable
class HasWeights(Protocol):
    """A module with attention; `weights` takes the arguments of its forward pass."""

    def weights(self, *args: Any) -> Tensor:
        """The attention weights (B, H, T, S) of a forward pass, zero outside the segments."""


@contextmanager
def observe_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Forward passes inside fill the dictionary: module name to attention weights (B, H, T, S)."""
    recorded: dict[str, Tensor] = {}

    def register(name: str, module: nn.Module) -> Any:
        def hook(attention: nn.Module, args: tuple[Any, ...], _: Any) -> None:
            if isinstance(attention, HasWeights):
                recorded[name] = attention.weights(*args)

        return module.register_forward_hook(hook)

    handles = [register(name, module) for name, module in model.named_modules()]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def observe_layers(stack: nn.ModuleList) -> Iterator[list[Tensor]]:
    """Forward passes inside fill the list with the output (N, D) of each layer, lowest first."""
    recorded: list[Tensor] = []

    def hook(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
        recorded.append(output)

    handles = [layer.register_forward_hook(hook) for layer in stack]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()

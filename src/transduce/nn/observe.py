"""Looking inside: what goes on in a forward pass, without a trace of it in the model's code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from transduce.nn.layers import Twice
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention


@contextmanager
def observe_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Forward passes made inside fill the dictionary: module name to weights (B, H, T, S)."""
    seen: dict[str, Tensor] = {}

    def watch(name: str, module: SelfAttention | CrossAttention) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], __: Tensor) -> None:
            seen[name] = module.weights(*args)

        return module.register_forward_hook(hook)

    handles = [
        watch(name, module)
        for name, module in model.named_modules()
        if isinstance(module, SelfAttention | CrossAttention)
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def observe_layers(stack: nn.ModuleList) -> Iterator[list[Tensor]]:
    """Forward passes made inside fill the list with the vectors (N, D) that leave each layer, lowest first."""
    seen: list[Tensor] = []

    def hook(_: nn.Module, __: tuple[Any, ...], output: Twice) -> None:
        seen.append(output[0])

    handles = [layer.register_forward_hook(hook) for layer in stack]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()

"""Names of attention heads: `cross.2.3` is head 3 of the cross-attention in decoder layer 2, counted from 1."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from transduce.errors import ConfigError
from transduce.models.encoder_decoder import EncoderDecoderConfig

Stack = Literal["encoder", "decoder", "cross"]
STACKS: tuple[Stack, ...] = ("encoder", "decoder", "cross")
_MODULES = {
    "encoder": "encoder.{}.self_attention",
    "decoder": "decoder.{}.self_attention",
    "cross": "decoder.{}.cross_attention",
}


@dataclass(frozen=True)
class Head:
    """An attention head; layer and head are indices that start at 0."""

    stack: Stack
    layer: int
    head: int

    @property
    def module(self) -> str:
        """The name of its attention module in the model."""
        return module_name(self.stack, self.layer)


def module_name(stack: Stack, layer: int) -> str:
    """The name of a layer's attention module in the model."""
    return _MODULES[stack].format(layer)


def count_layers(config: EncoderDecoderConfig, stack: Stack) -> int:
    """The number of layers that have this kind of attention."""
    return config.encoder_layers if stack == "encoder" else config.decoder_layers


def parse_heads(names: Iterable[str], config: EncoderDecoderConfig) -> list[Head]:
    """Parse the names of heads, without duplicates; ConfigError if the model has no such head."""
    return list(dict.fromkeys(_parse(name, config) for name in names))


def _parse(name: str, config: EncoderDecoderConfig) -> Head:
    stack, *numbers = name.split(".")
    if stack not in STACKS or len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        raise ConfigError(
            f"{name!r} is not the name of a head: write STACK.LAYER.HEAD, e.g. cross.1.2; stacks: {', '.join(STACKS)}"
        )
    layer, head = (int(number[:9]) for number in numbers)
    layers = count_layers(config, stack)
    if not (1 <= layer <= layers and 1 <= head <= config.num_heads):
        raise ConfigError(
            f"head {name} does not exist: {stack} has layers 1 to {layers} with heads 1 to {config.num_heads}"
        )
    return Head(stack, layer - 1, head - 1)

"""The names of attention heads: `cross.2.3` is head 3 of the cross-attention in decoder layer 2, counted from 1."""

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
    """One head, its layer and number counted from 0 as in the model's code."""

    stack: Stack
    layer: int
    head: int

    @property
    def module(self) -> str:
        """The name of its attention in the model."""
        return module_name(self.stack, self.layer)


def module_name(stack: Stack, layer: int) -> str:
    """The name, in the model, of the attention of a layer."""
    return _MODULES[stack].format(layer)


def count_layers(config: EncoderDecoderConfig, stack: Stack) -> int:
    """Layers that have this attention."""
    return config.encoder_layers if stack == "encoder" else config.decoder_layers


def parse_heads(names: Iterable[str], config: EncoderDecoderConfig) -> list[Head]:
    """The heads of these names, each once; a name that this model has no head for is refused."""
    return list(dict.fromkeys(_parse(name, config) for name in names))


def _parse(name: str, config: EncoderDecoderConfig) -> Head:
    stack, *numbers = name.split(".")
    if stack not in STACKS or len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        raise ConfigError(f"no head is called {name!r}: write stack.layer.head, e.g. cross.1.2; stacks: {_list()}")
    layer, head = (int(number[:9]) for number in numbers)
    layers = count_layers(config, stack)
    if not (1 <= layer <= layers and 1 <= head <= config.num_heads):
        raise ConfigError(
            f"head {name}: this model has layers 1 to {layers} there, with heads 1 to {config.num_heads} each"
        )
    return Head(stack, layer - 1, head - 1)


def _list() -> str:
    return ", ".join(STACKS)

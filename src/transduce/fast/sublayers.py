"""The sub-layers of a layer, for fused modules in their place."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from transduce.nn.layers import DecoderLayer, EncoderLayer, Residual
from transduce.nn.linear import Linear


def connections(layer: EncoderLayer | DecoderLayer) -> Iterator[tuple[Residual, nn.Module]]:
    """The residual connections of a layer, each with the sub-layer that it is around."""
    cross_attention = [layer.cross_attention] if isinstance(layer, DecoderLayer) else []
    sublayers = [layer.self_attention, *cross_attention, layer.feed_forward]
    yield from zip(layer.residuals, sublayers, strict=True)


def last_projection(sublayer: Any) -> Linear | None:
    """The projection that a sub-layer, or the sub-layer of a method such as `step`, ends in."""
    module = getattr(sublayer, "__self__", sublayer)
    return getattr(module, "out", None) or getattr(module, "outer", None)

"""A model's weights in the structures of decoder.c, whose arrays are numpy's."""

import ctypes
import threading
from ctypes import c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from transduce.engines.native.structs import PANEL, Layer, Linear, Model, Norm
from transduce.errors import ConfigError
from transduce.models.encoder_decoder import EncoderDecoder

PADDING = 16
"""Inputs are padded to a multiple of this."""
MAX_SIZE = 2**24
"""Maximum inputs or outputs of a layer and tokens of a text: no index in decoder.c then exceeds 32 bits."""


class Memory:
    """Makes structures, and owns the arrays that they point to."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._kept: list[Any] = []

    def keep(self, x: npt.NDArray[Any]) -> int:
        """Keep an array in memory; returns its address."""
        self._kept.append(x)
        return x.ctypes.data

    def linear(self, weight: npt.NDArray[np.float32], bias: npt.NDArray[np.float32]) -> Linear:
        """A linear layer with quantised weights in panels."""
        width_out, width_in = weight.shape
        require_size(max(width_out, width_in), "inputs or outputs of a layer")
        panels, padded_in = -(-width_out // PANEL), -(-width_in // PADDING) * PADDING
        packed = np.zeros(panels * PANEL * padded_in, np.int8)
        scale, padded_bias = (np.zeros(panels * PANEL, np.float32) for _ in range(2))
        padded_bias[:width_out] = bias
        total = np.zeros(panels * PANEL, np.int32)
        memory = [self.keep(x) for x in (packed, scale, total)]
        row = np.empty(padded_in, np.int8)
        dense = np.ascontiguousarray(weight)  # a variable, so that a copy is not freed before it is read
        addresses = map(c_void_p, (row.ctypes.data, *memory))
        self._library.pack_weights(c_void_p(dense.ctypes.data), width_out, width_in, padded_in, *addresses)
        return Linear(width_in, padded_in, width_out, panels, memory[0], memory[1], self.keep(padded_bias), memory[2])


class Weights(Memory):
    """A model's structures."""

    def __init__(self, model: EncoderDecoder, library: ctypes.CDLL) -> None:
        super().__init__(library)
        config, (d_k, d_v) = model.config, model.config.head_widths
        self.model = Model(
            model.vocab_size, config.d_model, config.num_heads, d_k, d_v,
            config.encoder_layers, config.decoder_layers, config.norm == "pre",
        )  # fmt: skip
        bias_V = model.output_bias_V
        bias = np.zeros(model.vocab_size, np.float32) if bias_V is None else _array(bias_V)
        self.model.projection = self.linear(_array(model.output_weight_VD), bias)
        self.model.encoder, self.model.decoder = self._stack(model.encoder), self._stack(model.decoder)
        if config.norm == "pre":
            self.model.encoder_norm, self.model.decoder_norm = map(self._norm, (model.encoder_norm, model.decoder_norm))
        assert model.embedding.positions is not None, "see `paper_limits`"
        self._positions, self._length, self._lock = model.embedding.positions, 0, threading.Lock()
        self.require_positions(1)

    def require_positions(self, length: int) -> None:
        """Make the table of positional encodings at least this long; an error if they are learned and it is not.

        Earlier tables stay in memory, since another thread may be in a call that reads them.
        """
        require_size(length, "tokens of a text")
        with self._lock:
            while self._length < length:
                self._positions.require(length)
                table_TD = _array(self._positions.table_TD)
                self.model.positions, self._length = self.keep(table_TD), len(table_TD)

    def _stack(self, layers: nn.ModuleList) -> Any:
        stack = (Layer * len(layers))()
        module: Any  # an EncoderLayer or a DecoderLayer
        for layer, module in zip(stack, layers, strict=True):
            layer.qkv, layer.out = map(self._linear, (module.self_attention.qkv, module.self_attention.out))
            layer.inner, layer.outer = map(self._linear, (module.feed_forward.inner, module.feed_forward.outer))
            norms = [self._norm(residual.norm) for residual in module.residuals]
            layer.norms[0], layer.norms[2] = norms[0], norms[-1]
            if len(norms) == 3:
                cross = module.cross_attention
                layer.q, layer.kv, layer.cross_out = map(self._linear, (cross.q, cross.kv, cross.out))
                layer.norms[1] = norms[1]
        self._kept.append(stack)
        return stack

    def _linear(self, module: nn.Linear) -> Linear:
        return self.linear(_array(module.weight), _array(module.bias))

    def _norm(self, norm: Any) -> Norm:
        gain, shift = (self.keep(_array(x)) for x in (norm.weight, norm.bias))
        return Norm(len(norm.weight), norm.eps, gain, shift)


def require_size(size: int, what: str) -> None:
    """Raise an error if a size exceeds MAX_SIZE."""
    if size > MAX_SIZE:
        raise ConfigError(f"{size:,} {what} are more than the {MAX_SIZE:,} that engine native takes; use plain")


def _array(x: Tensor) -> npt.NDArray[np.float32]:
    array: npt.NDArray[np.float32] = x.detach().float().cpu().contiguous().numpy()
    return array

"""Encoder-only models of texts in the native engine.

Vectors of texts are compared and stored, so they should not depend on the engine: weights and activations are rounded
to two 8-bit integers each, and three of the four products are computed.
"""

import ctypes
import math
import threading
from array import array
from collections.abc import Sequence
from ctypes import byref, c_void_p
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.fast.native.structs import (
    ACTIVATIONS,
    ENCODER_TOKENS,
    INTEGER_BYTES,
    LOGIT_PANELS,
    PADDING,
    PANEL,
    TILE_ROWS,
    Batch,
    Layer,
    Model,
)
from transduce.fast.native.weights import ModelWeights, address_of
from transduce.models.encoder_only import EncoderOnly, EncoderOnlyConfig
from transduce.models.weight_tensors import module_arrays
from transduce.models.weights_file import Arrays, Block, RawTensor

_PARTS = 2
"""8-bit integers of an activation."""
_COPIES = 3
"""Rows of integers for each token: its parts, and a copy of the first."""


_MATRICES = {
    "qkv": "self_attention.qkv", "out": "self_attention.out", "inner": "feed_forward.inner",
    "outer": "feed_forward.outer",
}  # fmt: skip
"""The matrices of a layer, by their fields in its structure."""


class EncoderWeights(ModelWeights):
    """The structures of an encoder-only model: an encoder-decoder model without a decoder."""

    def __init__(self, config: EncoderOnlyConfig, arrays: Arrays, library: ctypes.CDLL) -> None:
        super().__init__(config, arrays, library)
        embedding, (d_k, d_v) = arrays["embedding.weight_VD"], config.head_widths
        self.model = Model(
            vocabulary=embedding.shape[0], width=config.d_model, heads=config.num_heads, d_k=d_k, d_v=d_v,
            encoder_layers=config.layers, norm_first=config.norm == "pre",
            activation=ACTIVATIONS.index(config.activation),
            embedding_scale=math.sqrt(config.d_model) if config.embedding == "scaled" else 1.0,
        )  # fmt: skip
        assert isinstance(embedding, RawTensor)
        self.embedding = address_of(embedding)
        """The address of the embeddings, as floats."""
        if config.embedding == "normalized":
            self.model.source.norm = self._norm("embedding.norm")
        if config.positions == "learned":
            self._read_learned_positions(self.model.source)
        self.model.encoder = self._stack("encoder", config.layers)
        self.rest = self._rest("encoder", self.model.encoder, config.layers)
        """Layers with what the integers of the encoder's weights leave."""
        if config.norm == "pre":
            self.model.encoder_norm = self._norm("encoder_norm")
        self.require_positions(1)
        self._kept.append(embedding)  # this is the model's memory
        del self._arrays

    def _with_positions(self) -> list[Any]:
        return [self.model.source]

    def _rest(self, name: str, stack: Any, layers: int) -> Any:
        rest = (Layer * layers)()
        for number, layer in enumerate(rest):
            for field, part in _MATRICES.items():
                weight = self._arrays[f"{name}.{number}.{part}.weight"]
                assert isinstance(weight, RawTensor)
                weight_NK = np.frombuffer(weight.content, np.float32).reshape(weight.shape)
                rounded_NK = np.empty_like(weight_NK)
                self._library.unpack_weights(byref(getattr(stack[number], field)), c_void_p(rounded_NK.ctypes.data))
                left_NK = weight_NK - rounded_NK
                setattr(layer, field, self.linear(RawTensor("F32", weight.shape, left_NK.data.cast("B")), None))
        return rest


class NativeEncoder:
    """Runs an encoder with 8-bit integers, on several threads; calls run one after the other."""

    def __init__(self, model: EncoderOnly, library: ctypes.CDLL, threads: int) -> None:
        self._config, self._library, self._threads = model.config, library, threads
        self._weights = EncoderWeights(model.config, module_arrays(model.state_dict()), library)
        self._lock = threading.Lock()
        self._longest = 0
        """Tokens of the longest text that the buffers have room for."""

    def encode(self, texts: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        """The vectors (N, D) of the tokens of all texts, one text after the other."""
        lengths = [len(text) for text in texts]
        tokens, offsets = array("i", chain.from_iterable(texts)), array("i", [0, *accumulate(lengths)])
        model = self._weights.model
        vectors_ND = np.empty((len(tokens), model.width), np.float32)
        if not tokens:
            return vectors_ND
        assert 0 <= min(tokens) <= max(tokens) < model.vocabulary
        self._weights.require_positions(max(lengths))
        addresses = (c_void_p(numbers.buffer_info()[0]) for numbers in (tokens, offsets))
        with self._lock:
            self._reserve(max(lengths))
            self._library.encode_texts(
                byref(model), self._weights.rest, c_void_p(self._weights.embedding), *addresses, len(texts),
                byref(self._batch), c_void_p(vectors_ND.ctypes.data), self._threads,
            )  # fmt: skip
        return vectors_ND

    def _reserve(self, longest: int) -> None:
        """Allocate the buffers for texts up to this length, unless they are there."""
        if longest <= self._longest:
            return
        self._longest = longest
        config, (d_k, d_v) = self._config, self._config.head_widths
        rows = max(ENCODER_TOKENS, longest)
        scratch = self._library.scratch_size(config.d_model, config.num_heads, d_k, d_v, longest)
        width, wide = max(config.d_model, config.num_heads * d_v), max(config.d_ff, config.num_heads * (2 * d_k + d_v))
        bytes_of = {
            "x": rows * config.d_model * 4, "y": rows * width * 4, "wide": rows * wide * 4,
            "quantised": (rows * _COPIES + TILE_ROWS) * (max(wide, width) + PADDING) * INTEGER_BYTES,
            "scale": rows * _COPIES * 4,
            "scratch": self._threads * scratch * 4, "logits": self._threads * rows * LOGIT_PANELS * PANEL * 4,
        }  # fmt: skip
        self._buffers = {name: Block(size) for name, size in bytes_of.items()}
        addresses = {name: buffer.address for name, buffer in self._buffers.items()}
        self._batch = Batch(parts=_PARTS, scratch_size=scratch, **addresses)


def encoder_limits(config: EncoderOnlyConfig) -> str | None:
    """What engine native does not compute: it has the settings of BERT and the paper."""
    if config.activation in ("geglu", "swiglu"):
        return f"no encoders with model.activation = {config.activation}"
    if config.heads.kv_heads != config.num_heads:
        return "no grouped heads of keys and values"
    if config.positions == "rotary":
        return "no encoders with rotary positions"
    return "no attention other than the paper's" if config.attention_variant is not None else None

"""A model's weights in the structures of decoder.c."""

import ctypes
import math
import threading
from collections import defaultdict
from ctypes import c_size_t, c_void_p
from typing import Any

from transduce.errors import ConfigError, ModelError
from transduce.fast.native.structs import ACTIVATIONS, CHUNK, PADDING, PANEL, REALS, Layer, Linear, Model, Norm
from transduce.models.config import EncoderDecoderConfig, TransformerConfig
from transduce.models.weights_file import Array, Arrays, Block, Int8Matrix, RawTensor, Shapes, concatenated, joined
from transduce.tokenizers.tokenizer import BOS, EOS

MAX_SIZE = 2**24
"""Maximum inputs or outputs of a layer and tokens of a text: no index in decoder.c then exceeds 32 bits."""
_SINUSOIDS = {"sinusoidal": (False, 0), "marian": (True, 0), "fairseq": (True, 2)}
"""Whether all sines are before all cosines, and the first position, as in nn/positions.py, which needs torch."""
_MOST_BYTES = 1 << 28
"""How much is kept for later jobs: enough for a full batch of ordinary sentences."""


class Memory:
    """Makes structures, and owns the memory that they point to."""

    def __init__(self, library: ctypes.CDLL, *, chunked: bool = False) -> None:
        self._library, self._chunked = library, chunked
        """Whether weights have scales for chunks of inputs, as in language models (int8.h)."""
        self._kept: list[Any] = []

    def new(self, size: int) -> int:
        """New memory of this many bytes, all zeros; returns its address."""
        block = Block(size)
        self._kept.append(block)
        return block.address

    def floats(self, tensor: Array, room: int = 0) -> int:
        """The numbers of a tensor as floats, with zeros behind them up to `room` numbers; returns their address."""
        count = math.prod(tensor.shape)
        address = self.new(4 * max(count, room))
        self._read(tensor, address)
        return address

    def linear(self, weight: Array, bias: Array | None) -> Linear:
        """A linear layer with quantised weights in panels; integers are taken as they are stored, unless in chunks."""
        width_out, width_in = weight.shape
        require_size(max(width_out, width_in), "inputs or outputs of a layer")
        panels, padded_in = -(-width_out // PANEL), -(-width_in // PADDING) * PADDING
        rows = panels * PANEL
        scales = -(-padded_in // CHUNK) if self._chunked else 1
        packed, scale, start = (self.new(size) for size in (rows * padded_in, 4 * rows * scales, 4 * rows))
        padded_bias = self.new(4 * rows) if bias is None else self.floats(bias, rows)
        row = Block(padded_in)
        sizes, addresses = (
            (width_out, width_in, padded_in, self._chunked),
            map(c_void_p, (row.address, packed, scale, start)),
        )
        # Variables, so that memory is not freed before it is read.
        if isinstance(weight, Int8Matrix):
            largest, floats = Block(4 * width_out), Block(4 * width_in)
            self._read(weight.largest_N, largest.address)
            stored = map(c_void_p, (address_of(weight.q_NK), largest.address, floats.address))
            self._library.pack_int8_weights(*stored, *sizes, *addresses)
        else:
            dense = Block(4 * width_out * width_in)
            self._read(weight, dense.address)
            self._library.pack_weights(c_void_p(dense.address), *sizes, *addresses)
        return Linear(width_in, padded_in, width_out, panels, packed, scale, padded_bias, start)

    def _read(self, tensor: Array, address: int) -> None:
        """Write the numbers of a tensor as floats; those of a file must be finite."""
        assert isinstance(tensor, RawTensor)
        count = math.prod(tensor.shape)
        type_number = REALS.index(tensor.dtype)
        finite = count == 0 or self._library.read_floats(
            c_void_p(address_of(tensor)), type_number, c_size_t(count), c_void_p(address)
        )
        if tensor.origin and not finite:
            raise ModelError(f"{tensor.origin} contains values that are not finite numbers")


def address_of(tensor: RawTensor) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(tensor.content))


class ModelWeights(Memory):
    """What the structures of all models have in common."""

    model: Any
    """The structure, `structs.Model` or `structs.LanguageModel`."""
    _least_positions = 1
    """Positions for which memory is reserved at first."""

    def __init__(
        self, config: TransformerConfig, arrays: Arrays, library: ctypes.CDLL, *, chunked: bool = False
    ) -> None:
        super().__init__(library, chunked=chunked)
        self._config, self._arrays = config, arrays
        self._length, self._lock = 0, threading.Lock()

    def require_positions(self, length: int) -> None:
        """Make the tables of positions at least this long; an error if they are learned and they are not.

        Earlier tables stay in memory, since another thread may be in a call that reads them.
        """
        require_size(length, "tokens of a text")
        with self._lock:
            if length <= self._length:
                return
            if self._config.positions == "learned":
                raise ConfigError(
                    f"a text of {length} tokens exceeds the {self._length} learned positions (model.max_positions)"
                )
            length = max(length, 2 * self._length, self._least_positions)
            self._compute_positions(length)
            self._length = length

    def _compute_positions(self, length: int) -> None:
        width = self._config.d_model
        table = self.new(4 * length * width)
        halves, first = _SINUSOIDS[self._config.positions]
        self._library.fill_positions(halves, first, length, width, c_void_p(table))
        for reader in self._with_positions():
            reader.positions = table

    def _with_positions(self) -> list[Any]:
        """The structures that point to a table of positions."""
        return [self.model]

    def _read_learned_positions(self, reader: Any, name: str = "embedding") -> None:
        table_TD = self._arrays[f"{name}.positions.table_TD"]
        reader.positions, self._length = self.floats(table_TD), table_TD.shape[0]

    def _stack(self, name: str, layers: int, *, cross: bool = False) -> Any:
        stack = (Layer * layers)()
        for number, layer in enumerate(stack):
            of = f"{name}.{number}"
            self._self_attention(layer, f"{of}.self_attention")
            layer.inner, layer.outer = (self._linear(f"{of}.feed_forward.{part}") for part in ("inner", "outer"))
            if cross:
                layer.q, layer.kv, layer.cross_out = (
                    self._linear(f"{of}.cross_attention.{part}") for part in ("q", "kv", "out")
                )
            for index, place in enumerate((0, 1, 2) if cross else (0, 2)):
                layer.norms[place] = self._norm(f"{of}.residuals.{index}.norm")
        self._kept.append(stack)
        return stack

    def _self_attention(self, layer: Layer, name: str) -> None:
        layer.qkv, layer.out = self._linear(f"{name}.qkv"), self._linear(f"{name}.out")

    def _linear(self, name: str) -> Linear:
        return self.linear(self._arrays[f"{name}.weight"], self._arrays[f"{name}.bias"] if self._config.bias else None)

    def _norm(self, name: str) -> Norm:
        gain = self._arrays[f"{name}.weight"]
        shift = self.floats(self._arrays[f"{name}.bias"]) if self._config.norm_type == "layer" else None
        return Norm(gain.shape[0], self._config.norm_epsilon, self.floats(gain), shift)


class Weights(ModelWeights):
    """The structures of an encoder-decoder model."""

    def __init__(self, config: EncoderDecoderConfig, arrays: Arrays, library: ctypes.CDLL) -> None:
        super().__init__(config, arrays, library)
        embedding = arrays["embedding.weight_VD"]
        vocabulary, (d_k, d_v) = embedding.shape[0], config.head_widths
        self._has_ssru = config.decoder_cell == "ssru"
        self.model = Model(
            vocabulary, config.d_model, config.num_heads, d_k, d_v,
            config.encoder_layers, config.decoder_layers, config.norm == "pre",
            ACTIVATIONS.index(config.activation), self._has_ssru, config.alignment_layer,
            EOS if config.decoder_tag else BOS,
            math.sqrt(config.d_model) if config.embedding == "scaled" else 1.0,
        )  # fmt: skip
        projection = embedding if config.tie_output else arrays["output.weight_VD"]
        self.model.projection = self.linear(projection, arrays["output.bias_V"] if config.output_bias else None)
        source, target = self.model.source, self.model.target
        target.embedding = self.model.projection if config.tie_output else self.linear(embedding, None)
        source.embedding, self.source_vocabulary = target.embedding, vocabulary
        if config.source_vocab_size is not None:
            self.source_vocabulary = config.source_vocab_size
            source.embedding = self.linear(arrays["source_weight_VD"], None)
        for side, name in ((source, _source_name(config)), (target, "embedding")):
            if config.embedding == "normalized":
                side.norm = self._norm(f"{name}.norm")
            if config.positions == "learned":
                self._read_learned_positions(side, name)
        self.model.encoder = self._stack("encoder", config.encoder_layers)
        self.model.decoder = self._stack("decoder", config.decoder_layers, cross=True)
        if config.norm == "pre":
            self.model.encoder_norm, self.model.decoder_norm = map(self._norm, ("encoder_norm", "decoder_norm"))
        self.require_positions(min(config.max_positions, 256))
        del self._arrays  # those that are stored in 8 bits are not needed any more

    def _with_positions(self) -> list[Any]:
        return [self.model.source, self.model.target]

    def _self_attention(self, layer: Layer, name: str) -> None:
        """An SSRU has its input, which has no bias, and its forget gate as one layer."""
        if not (self._has_ssru and name.startswith("decoder")):
            super()._self_attention(layer, name)
            return
        weights = [self._arrays[f"{name}.{part}.weight"] for part in ("input", "forget")]
        gate_bias = self._arrays[f"{name}.forget.bias"]
        assert isinstance(gate_bias, RawTensor)
        no_bias = gate_bias._replace(content=memoryview(bytearray(len(gate_bias.content))))
        layer.qkv = self.linear(concatenated(weights), joined([no_bias, gate_bias]))


def _source_name(config: EncoderDecoderConfig) -> str:
    """The module with the norm and the positions of the source."""
    return "embedding" if config.share_positions else "source_embedding"


def weight_shapes(config: EncoderDecoderConfig, vocab_size: int) -> Shapes:
    """The shapes of all weights of a model with the settings of the paper, pre-norm, Marian or BART."""
    d_model, d_ff, heads, (d_k, d_v) = config.d_model, config.d_ff, config.num_heads, config.head_widths
    shapes: Shapes = {"embedding.weight_VD": (vocab_size, d_model)}

    def linear(name: str, width_out: int, width_in: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (width_out, width_in), (width_out,)

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (d_model,)

    for stack, layers, norms in (("encoder", config.encoder_layers, 2), ("decoder", config.decoder_layers, 3)):
        for layer in (f"{stack}.{number}" for number in range(layers)):
            if stack == "decoder" and config.decoder_cell == "ssru":
                shapes[f"{layer}.self_attention.input.weight"] = (d_model, d_model)
                linear(f"{layer}.self_attention.forget", d_model, d_model)
            else:
                linear(f"{layer}.self_attention.qkv", heads * (2 * d_k + d_v), d_model)
                linear(f"{layer}.self_attention.out", d_model, heads * d_v)
            if stack == "decoder":
                linear(f"{layer}.cross_attention.q", heads * d_k, d_model)
                linear(f"{layer}.cross_attention.kv", heads * (d_k + d_v), d_model)
                linear(f"{layer}.cross_attention.out", d_model, heads * d_v)
            linear(f"{layer}.feed_forward.inner", d_ff, d_model)
            linear(f"{layer}.feed_forward.outer", d_model, d_ff)
            for number in range(norms):
                norm(f"{layer}.residuals.{number}.norm")
        if config.norm == "pre":
            norm(f"{stack}_norm")
    for name in (_source_name(config), "embedding"):
        if config.positions == "learned":
            shapes[f"{name}.positions.table_TD"] = (config.max_positions, d_model)
        if config.embedding == "normalized":
            norm(f"{name}.norm")
    if not config.tie_output:
        shapes["output.weight_VD"] = (vocab_size, d_model)
    if config.source_vocab_size is not None:
        shapes["source_weight_VD"] = (config.source_vocab_size, d_model)
    if config.output_bias:
        shapes["output.bias_V"] = (vocab_size,)
    return shapes


def require_size(size: int, what: str) -> None:
    if size > MAX_SIZE:
        raise ConfigError(f"{size:,} {what} are more than the {MAX_SIZE:,} that engine native takes; use plain")


class SpareMemory:
    """Blocks for KV caches that jobs use one after another: fresh memory costs a page fault for every 4 KB."""

    def __init__(self) -> None:
        self._spare: defaultdict[int, list[Block]] = defaultdict(list)
        """By their sizes, which are powers of two, so that jobs of similar lengths can use them."""
        self._kept = 0
        self._lock = threading.Lock()

    def take(self, floats: int) -> Block:
        """A block for at least this many numbers."""
        size = 4 << (floats - 1).bit_length() if floats else 0
        with self._lock:
            if self._spare[size]:
                self._kept -= size
                return self._spare[size].pop()
        return Block(size)

    def give_back(self, block: Block) -> None:
        """Keep a block that is not used any more, unless there are enough."""
        with self._lock:
            if self._kept + block.size <= _MOST_BYTES:
                self._kept += block.size
                self._spare[block.size].append(block)

"""The Transformer of the paper: an encoder for the source, a decoder for the target (section 3, figure 1)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import require
from transduce.data.batch import Batch, Stream
from transduce.models.model import Model, ModelConfig
from transduce.nn.cache import KVCache, TensorKVCache
from transduce.nn.embedding import Embedding
from transduce.nn.layers import DecoderLayer, EncoderLayer, NormPlacement
from transduce.nn.linear import scale_residual_outputs
from transduce.nn.multi_head_attention import CrossAttention
from transduce.nn.positions import Positions

_DEEP = 6
"""Number of decoder layers from which the last but one aligns better than the last (docs/log.md)."""


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(ModelConfig):
    """The sizes of Table 3; the defaults are its base model."""

    encoder_layers: int = 6
    """N, the number of encoder layers."""
    decoder_layers: int = 6
    """N, the number of decoder layers."""
    d_ff: int = 2048
    """Inner width of the feed-forward network."""
    num_heads: int = 8
    """h, the number of attention heads."""
    d_k: int | None = None
    """Width of a head's queries and keys; d_model / num_heads if not given."""
    d_v: int | None = None
    """Width of a head's values; d_model / num_heads if not given."""
    dropout: float = 0.1
    """P_drop: dropout on every sub-layer's output and on the embeddings (section 5.4)."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Positional encoding: the paper's sinusoids, or learned vectors (Table 3, row E)."""
    max_positions: int = 1024
    """Number of learned positions; sinusoids have no limit."""
    norm: NormPlacement = "post"
    """Layer norm after the residual connection, as in the paper, or before the sub-layer."""

    def __post_init__(self) -> None:
        for name in ("encoder_layers", "decoder_layers", "d_model", "d_ff", "num_heads", "max_positions"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in ("d_k", "d_v"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} must be at least 1")
            divides = self.d_model % self.num_heads == 0
            require(value is not None or divides, f"num_heads must divide d_model, or give {name}")
        require(self.max_positions <= 2**16, "max_positions must be at most 65536")
        require(0 <= self.dropout < 1, "dropout must be at least 0 and below 1")

    @property
    def head_widths(self) -> tuple[int, int]:
        """d_k and d_v."""
        width = self.d_model // self.num_heads
        return self.d_k or width, self.d_v or width

    def min_parameters(self, vocab_size: int) -> int:
        """See `ModelConfig`: the elements of all matrices, without biases, norms and learned positions."""
        attention = 2 * self.d_model * self.num_heads * sum(self.head_widths)
        feed_forward = 2 * self.d_model * self.d_ff
        layers = self.encoder_layers * (attention + feed_forward) + self.decoder_layers * (2 * attention + feed_forward)
        return vocab_size * self.d_model + layers

    def sizes(self) -> dict[str, Any]:
        """See `ModelConfig`; dropout is not included."""
        d_k, d_v = self.head_widths
        return asdict(replace(self, dropout=0.0, d_k=d_k, d_v=d_v))


@dataclass
class DecoderState:
    """The state of incremental decoding. The rows of a sentence are adjacent; all sentences have the same number."""

    caches: list[TensorKVCache]
    """One for each decoder layer."""
    position: int
    """Number of tokens processed so far."""


class EncoderDecoder(Model):
    """The Transformer. Training calls `forward`; search uses `start`, `step` and `reorder`."""

    config: EncoderDecoderConfig

    def __init__(self, config: EncoderDecoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        d_k, d_v = config.head_widths
        sizes = (config.d_model, config.d_ff, config.num_heads, d_k, d_v, config.dropout, config.norm)
        positions = Positions(config.positions, config.max_positions, config.d_model)
        self.embedding = Embedding(vocab_size, positions, config.d_model, config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(config.decoder_layers))
        scale_residual_outputs(self.encoder, sublayers=2)
        scale_residual_outputs(self.decoder, sublayers=3)
        # A post-norm stack already ends in a norm; a pre-norm stack needs one at its end.
        pre_norm = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()

    def forward(self, batch: Batch) -> Tensor:
        """See `Model`: the decoder's output for the stream `tgt`, given the stream `src`."""
        src, tgt = batch["src"], batch["tgt"]
        memory_ND = self.encode(src)
        self.reserve(tgt.segments.longest)
        x = self.embedding(tgt.ids_N, tgt.segments.position_N)
        for layer in self.decoder:
            x = layer(x, tgt.segments, memory_ND, src.segments)
        hidden_MD = self.decoder_norm(x[0])
        return hidden_MD if batch.positions_L is None else hidden_MD[batch.positions_L]

    def encode(self, src: Stream) -> Tensor:
        """The encoder's output (N, D)."""
        self.reserve(src.segments.longest)
        x = self.embedding(src.ids_N, src.segments.position_N)
        for layer in self.encoder:
            x = layer(x, src.segments)
        return self.encoder_norm(x[0])

    def start(self, src: Stream) -> DecoderState:
        """Encode the sources; the state has one row for each."""
        memory_ND = self.encode(src)
        layout, caches = src.segments.layout, []
        mask_B11S = layout.real_BT[:, None, None, :]
        for layer in self.decoder_layers():
            k_NHK, v_NHK = layer.cross_attention.project_memory(memory_ND)
            k_BHSK, v_BHSK = (layout.pad(x).transpose(1, 2).contiguous() for x in (k_NHK, v_NHK))
            caches.append(TensorKVCache.empty(k_BHSK, v_BHSK, mask_B11S))
        return DecoderState(caches, position=0)

    def step(self, token_R: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Process one token per row; returns the logits (R, V) of the next token, and the new state."""
        self.reserve(state.position + 1)
        hidden_RD = self.decode(token_R, torch.full_like(token_R, state.position), state.caches)
        state.position += 1
        return F.linear(hidden_RD, self.output_weight_VD), state

    def decode(self, token_R: Tensor, position_R: Tensor, caches: Sequence[KVCache]) -> Tensor:
        """The hidden vectors (R, D) of one new token in each row, given the KV cache of every layer."""
        x = self.embedding(token_R, position_R)
        for layer, cache in zip(self.decoder_layers(), caches, strict=True):
            x = layer.step(x, cache)
        return self.decoder_norm(x[0])

    def reorder(self, state: DecoderState, index_BW: Tensor) -> DecoderState:
        """The state whose sentence b has the old rows index_BW[b]; sentences may be removed, in order."""
        for cache in state.caches:
            cache.reorder(index_BW)
        return state

    @property
    def output_weight_VD(self) -> Tensor:
        """See `Model`: the embedding matrix (section 3.4)."""
        return self.embedding.weight_VD

    @property
    def longest(self) -> int | None:
        """See `Model`: the number of learned positions, less one for the marker."""
        return self.config.max_positions - 1 if self.config.positions == "learned" else None

    def reserve(self, length: int) -> None:
        """See `Model`: sinusoids are computed up to this position."""
        self.embedding.positions.require(length)

    def layers(self) -> Iterable[nn.Module]:
        """See `Model`."""
        return (*self.encoder, *self.decoder)

    @property
    def alignment_attention(self) -> CrossAttention:
        """See `Model`: of six layers, the last but one aligns best (Garg et al., 2019); of two or three, the last."""
        layers = list(self.decoder_layers())
        return layers[-2 if len(layers) >= _DEEP else -1].cross_attention

    def decoder_layers(self) -> Iterator[DecoderLayer]:
        """The layers of the decoder, with their type."""
        return cast(Iterator[DecoderLayer], iter(self.decoder))

"""The Transformer of the paper: an encoder reads the source, a decoder writes the target (section 3, figure 1)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from transduce.config import require
from transduce.nn.cache import Cache, LayerCache
from transduce.nn.embedding import Embedding
from transduce.nn.layers import DecoderLayer, EncoderLayer, NormPlace
from transduce.nn.linear import calm_residuals
from transduce.nn.positions import Positions
from transduce.nn.segments import Segments


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The sizes of Table 3; the defaults are its base model."""

    encoder_layers: int = 6
    """N of the encoder."""
    decoder_layers: int = 6
    """N of the decoder."""
    d_model: int = 512
    """Width of every token's vector."""
    d_ff: int = 2048
    """Inner width of the feed-forward network."""
    num_heads: int = 8
    """h, the attentions side by side."""
    d_k: int | None = None
    """Width of a head's queries and keys; d_model / num_heads unless given."""
    d_v: int | None = None
    """Width of a head's values; d_model / num_heads unless given."""
    dropout: float = 0.1
    """P_drop, on every sub-layer's output and on the embeddings (section 5.4)."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """The paper's sinusoids, or learnt positions (Table 3, row E)."""
    max_positions: int = 1024
    """Places that learnt positions know; sinusoids have no limit."""
    norm: NormPlace = "post"
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

    def fewest_parameters(self, vocab_size: int) -> int:
        """Numbers in the matrices of such a model; biases, norms and learnt positions come on top."""
        attention = 2 * self.d_model * self.num_heads * sum(self.head_widths)
        feed_forward = 2 * self.d_model * self.d_ff
        layers = self.encoder_layers * (attention + feed_forward) + self.decoder_layers * (2 * attention + feed_forward)
        return vocab_size * self.d_model + layers


@dataclass
class DecoderState:
    """What decoding remembers between steps. Rows of one sentence stand together, equally many for each."""

    layers: list[LayerCache]
    position: int
    """Tokens taken so far."""


class EncoderDecoder(nn.Module):
    """The model. Training calls it; search uses `start`, `step` and `reorder`."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        d_k, d_v = config.head_widths
        sizes = (config.d_model, config.d_ff, config.num_heads, d_k, d_v, config.dropout, config.norm)
        positions = Positions(config.positions, config.max_positions, config.d_model)
        self.embedding = Embedding(vocab_size, positions, config.d_model, config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(config.decoder_layers))
        calm_residuals(self.encoder, sublayers=2)
        calm_residuals(self.decoder, sublayers=3)
        # A post-norm stack ends in a norm already; a pre-norm one needs one at its end.
        ends_bare = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model) if ends_bare else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if ends_bare else nn.Identity()

    def forward(self, src_N: Tensor, src_segments: Segments, tgt_M: Tensor, tgt_segments: Segments) -> Tensor:
        """The decoder's last hidden vectors (M, D): `embedding.logits` or the loss turns them into words."""
        memory_ND = self.encode(src_N, src_segments)
        self.embedding.positions.require(tgt_segments.longest)
        x = self.embedding(tgt_M, tgt_segments.position_N)
        for layer in self.decoder_layers():
            x = layer(x, tgt_segments, memory_ND, src_segments)
        return self.decoder_norm(x[0])

    def encode(self, src_N: Tensor, src_segments: Segments) -> Tensor:
        """The source as the decoder sees it (N, D)."""
        self.embedding.positions.require(src_segments.longest)
        x = self.embedding(src_N, src_segments.position_N)
        for layer in self.encoder:
            x = layer(x, src_segments)
        return self.encoder_norm(x[0])

    def start(self, source: tuple[Tensor, Segments]) -> DecoderState:
        """Encode the sources; the state has one row for each."""
        src_N, segments = source
        memory_ND = self.encode(src_N, segments)
        layers, mask_B11S = [], segments.layout.real_BT[:, None, None, :]
        for layer in self.decoder_layers():
            k_NHK, v_NHK = layer.cross_attention.project_memory(memory_ND)
            k_BHSK, v_BHSK = (segments.layout.pad(x).transpose(1, 2).contiguous() for x in (k_NHK, v_NHK))
            layers.append(LayerCache.empty(k_BHSK, v_BHSK, mask_B11S))
        return DecoderState(layers, position=0)

    def step(self, token_R: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Take one token per row; the logits (R, V) of the next one."""
        self.embedding.positions.require(state.position + 1)
        hidden_RD = self.decode(token_R, torch.full_like(token_R, state.position), state.layers)
        state.position += 1
        return self.embedding.logits(hidden_RD), state

    def decode(self, token_R: Tensor, position_R: Tensor, caches: Sequence[Cache]) -> Tensor:
        """The hidden vectors (R, D) of one new token in each row, with what the layers' caches remember."""
        x = self.embedding(token_R, position_R)
        for layer, cache in zip(self.decoder_layers(), caches, strict=True):
            x = layer.step(x, cache)
        return self.decoder_norm(x[0])

    def reorder(self, state: DecoderState, index_BW: Tensor) -> DecoderState:
        """The state whose sentence b has the old rows index_BW[b]; sentences may leave but keep their order."""
        for cache in state.layers:
            cache.reorder(index_BW)
        return state

    @property
    def longest(self) -> int | None:
        """Tokens a text may have, its marker not counted, where learnt positions set a limit."""
        return self.config.max_positions - 1 if self.config.positions == "learned" else None

    def decoder_layers(self) -> Iterator[DecoderLayer]:
        """The decoder, layer by layer."""
        return cast(Iterator[DecoderLayer], iter(self.decoder))

    @property
    def parameters_count(self) -> int:
        """Trained numbers; the shared embedding counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

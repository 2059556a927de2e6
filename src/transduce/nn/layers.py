"""Layers of the encoder and the decoder (section 3.1): sub-layers with residual connections and norms."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from transduce.nn.cache import KVCache
from transduce.nn.dropout import Dropout
from transduce.nn.feed_forward import Activation, FeedForward
from transduce.nn.kinds import HeadSizes
from transduce.nn.kinds import NormPlacement as NormPlacement
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention
from transduce.nn.norm import NormType, make_norm
from transduce.nn.positions import Rotary
from transduce.nn.segments import Segments


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """The sizes of a layer, and in what it differs from the paper's."""

    d_model: int
    d_ff: int
    heads: HeadSizes
    dropout: float
    norm: NormPlacement = "post"
    norm_type: NormType = "layer"
    norm_epsilon: float = 1e-5
    activation: Activation = "relu"
    rotary: Rotary | None = None
    """Rotates queries and keys of self-attention; all layers share it."""
    attention_dropout: float = 0.0
    """Dropout on the attention weights."""
    qk_norm: bool = False
    """Whether queries and keys are normalized."""
    window: int | None = None
    """Number of positions up to itself that a position attends to; None: all."""
    score_cap: float | None = None
    """Bound of the scores of self-attention."""

    def make_self_attention(self, *, causal: bool) -> nn.Module:
        """The self-attention of a layer."""
        return SelfAttention(
            self.d_model, self.heads, causal=causal, rotary=self.rotary, dropout=self.attention_dropout,
            window=self.window, norm_epsilon=self.norm_epsilon if self.qk_norm else None,
            score_cap=self.score_cap,
        )  # fmt: skip

    def make_cross_attention(self) -> CrossAttention:
        """The cross-attention of a layer."""
        return CrossAttention(self.d_model, self.heads, dropout=self.attention_dropout)


class Residual(nn.Module):
    """A residual connection around a sub-layer, with its norm after it, as in the paper, or before the sub-layer.

    Gemma has a second norm, of the sub-layer's output.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.norm = make_norm(config.norm_type, config.d_model, config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.norm_first = config.norm != "post"
        self.output_norm = (
            make_norm(config.norm_type, config.d_model, config.norm_epsilon) if config.norm == "both" else nn.Identity()
        )

    def forward(self, x_ND: Tensor, sublayer: Callable[..., Tensor], *args: Any) -> Tensor:
        """(N, D) to (N, D); `sublayer` is called with vectors and these arguments."""
        if self.norm_first:
            return x_ND + self.dropout(self.output_norm(sublayer(self.norm(x_ND), *args)))
        return self.norm(x_ND + self.dropout(sublayer(x_ND, *args)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward. With `causal`, it is a layer of a decoder-only model."""

    def __init__(self, config: LayerConfig, *, causal: bool = False) -> None:
        super().__init__()
        self.self_attention = config.make_self_attention(causal=causal)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, bias=config.heads.bias)
        self.residuals = nn.ModuleList(Residual(config) for _ in range(2))

    def forward(self, x_ND: Tensor, segments: Segments, score_bias_BHTS: Tensor | None = None) -> Tensor:
        """(N, D) to (N, D)."""
        around_self, around_feed_forward = self.residuals
        x_ND = around_self(x_ND, self.self_attention, segments, score_bias_BHTS)
        return around_feed_forward(x_ND, self.feed_forward)

    def prefill(self, x_ND: Tensor, segments: Segments, keys_and_values: list[tuple[Tensor, Tensor]]) -> Tensor:
        """`forward`, which appends the keys and values (N, H, K) of self-attention to a list, for a cache."""
        around_self, around_feed_forward = self.residuals
        x_ND = around_self(x_ND, self.self_attention.prefill, segments, keys_and_values)
        return around_feed_forward(x_ND, self.feed_forward)

    def step(self, x_RD: Tensor, position_R: Tensor, cache: KVCache) -> Tensor:
        """`forward` for one new token per row, with the keys and values in the cache."""
        around_self, around_feed_forward = self.residuals
        x_RD = around_self(x_RD, self.self_attention.step, position_R, cache)
        return around_feed_forward(x_RD, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the encoder's output, then feed-forward."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.self_attention = config.make_self_attention(causal=True)
        self.cross_attention = config.make_cross_attention()
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, bias=config.heads.bias)
        self.residuals = nn.ModuleList(Residual(config) for _ in range(3))

    def forward(
        self,
        x_MD: Tensor,
        segments: Segments,
        memory_ND: Tensor,
        memory_segments: Segments,
        score_bias_BHTS: Tensor | None = None,
    ) -> Tensor:
        """(M, D) to (M, D), attending to the encoder's output."""
        around_self, around_cross, around_feed_forward = self.residuals
        x_MD = around_self(x_MD, self.self_attention, segments, score_bias_BHTS)
        x_MD = around_cross(x_MD, self.cross_attention, segments, memory_ND, memory_segments)
        return around_feed_forward(x_MD, self.feed_forward)

    def step(self, x_RD: Tensor, position_R: Tensor, cache: KVCache, score_bias_RHT: Tensor | None = None) -> Tensor:
        """`forward` for one new token per row, with the keys and values in the cache."""
        around_self, around_cross, around_feed_forward = self.residuals
        x_RD = around_self(x_RD, self.self_attention.step, position_R, cache, score_bias_RHT)
        x_RD = around_cross(x_RD, self.cross_attention.step, cache)
        return around_feed_forward(x_RD, self.feed_forward)

"""Layers of the encoder and the decoder (section 3.1): sub-layers with residual connections and layer norm."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from transduce.nn.cache import LayerCache
from transduce.nn.dropout import Dropout
from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head import CrossAttention, SelfAttention
from transduce.nn.segments import Segments

NormPlace = Literal["post", "pre"]


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))); or x + Dropout(Sublayer(LayerNorm(x))) where the norm comes first."""

    def __init__(self, d_model: int, dropout: float, norm: NormPlace) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.norm_first = norm == "pre"

    def forward(self, x_ND: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply the sub-layer around the residual connection."""
        if self.norm_first:
            return x_ND + self.dropout(sublayer(self.norm(x_ND)))
        return self.norm(x_ND + self.dropout(sublayer(x_ND)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(
        self, d_model: int, d_ff: int, num_heads: int, d_k: int, d_v: int, dropout: float, norm: NormPlace
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, num_heads, d_k, d_v, causal=False)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.residuals = nn.ModuleList(Residual(d_model, dropout, norm) for _ in range(2))

    def forward(self, x_ND: Tensor, segments: Segments) -> Tensor:
        """(N, D) to (N, D)."""
        around_self, around_feed_forward = self.residuals
        x_ND = around_self(x_ND, lambda x: self.self_attention(x, segments))
        return around_feed_forward(x_ND, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the encoder's output, then feed-forward."""

    def __init__(
        self, d_model: int, d_ff: int, num_heads: int, d_k: int, d_v: int, dropout: float, norm: NormPlace
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, num_heads, d_k, d_v, causal=True)
        self.cross_attention = CrossAttention(d_model, num_heads, d_k, d_v)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.residuals = nn.ModuleList(Residual(d_model, dropout, norm) for _ in range(3))

    def forward(self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments) -> Tensor:
        """(M, D) to (M, D), looking at the memory."""
        around_self, around_cross, around_feed_forward = self.residuals
        x_MD = around_self(x_MD, lambda x: self.self_attention(x, segments))
        x_MD = around_cross(x_MD, lambda x: self.cross_attention(x, segments, memory_ND, memory_segments))
        return around_feed_forward(x_MD, self.feed_forward)

    def step(self, x_RD: Tensor, cache: LayerCache, position: int, memory_mask_B11S: Tensor) -> Tensor:
        """The same for one new token in each row, with what the cache remembers."""
        around_self, around_cross, around_feed_forward = self.residuals
        x_RD = around_self(x_RD, lambda x: self.self_attention.step(x, cache, position))
        x_RD = around_cross(x_RD, lambda x: self.cross_attention.step(x, cache, memory_mask_B11S))
        return around_feed_forward(x_RD, self.feed_forward)

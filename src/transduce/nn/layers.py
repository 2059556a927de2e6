"""Layers of the encoder and the decoder (section 3.1): sub-layers with residual connections and layer norm."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from transduce.nn import kernels
from transduce.nn.cache import Cache
from transduce.nn.dropout import Dropout
from transduce.nn.feed_forward import FeedForward
from transduce.nn.linear import Linear
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention
from transduce.nn.segments import Segments

NormPlace = Literal["post", "pre"]

Twice = tuple[Tensor, Tensor]
"""The same vectors for two readers, the sub-layer and the residual connection around it."""


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))); or x + Dropout(Sublayer(LayerNorm(x))) where the norm comes first.

    Every sub-layer ends in a projection `out` back to d_model: W^O of attention, W2 of the feed-forward network. It is
    applied here, because its bias is best added on the way.
    """

    def __init__(self, d_model: int, dropout: float, norm: NormPlace) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.norm_first = norm == "pre"

    def forward(self, x: Twice, sublayer: Callable[[Tensor], Tensor], out: Linear) -> Twice:
        """Apply the sub-layer and the projection it ends in around the residual connection."""
        x_ND, shortcut_ND = x
        if self.norm_first:
            y_ND = shortcut_ND + self.dropout(out(sublayer(self.norm(x_ND))))
        elif kernels.fit(x_ND):
            return self._fused(shortcut_ND, out.without_bias(sublayer(x_ND)), out.bias)
        else:
            y_ND = self.norm(shortcut_ND + self.dropout(out(sublayer(x_ND))))
        return y_ND, y_ND

    def _fused(self, shortcut_ND: Tensor, sublayer_ND: Tensor, bias_D: Tensor) -> Twice:
        from transduce.nn.kernels.add_norm import AddNorm

        norm, p = self.norm, self.dropout.p if self.training else 0.0
        return AddNorm.apply(shortcut_ND, sublayer_ND, bias_D, norm.weight, norm.bias, p, norm.eps)  # type: ignore[no-untyped-call]


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(
        self, d_model: int, d_ff: int, num_heads: int, d_k: int, d_v: int, dropout: float, norm: NormPlace
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, num_heads, d_k, d_v, causal=False)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.residuals = nn.ModuleList(Residual(d_model, dropout, norm) for _ in range(2))

    def forward(self, x: Twice, segments: Segments) -> Twice:
        """(N, D) to (N, D)."""
        around_self, around_feed_forward = self.residuals
        x = around_self(x, lambda x_ND: self.self_attention(x_ND, segments), self.self_attention.out)
        return around_feed_forward(x, self.feed_forward, self.feed_forward.outer)


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

    def forward(self, x: Twice, segments: Segments, memory_ND: Tensor, memory_segments: Segments) -> Twice:
        """(M, D) to (M, D), looking at the memory."""
        around_self, around_cross, around_feed_forward = self.residuals
        x = around_self(x, lambda x_MD: self.self_attention(x_MD, segments), self.self_attention.out)
        cross = self.cross_attention
        x = around_cross(x, lambda x_MD: cross(x_MD, segments, memory_ND, memory_segments), cross.out)
        return around_feed_forward(x, self.feed_forward, self.feed_forward.outer)

    def step(self, x: Twice, cache: Cache) -> Twice:
        """The same for one new token in each row, with what the cache remembers."""
        around_self, around_cross, around_feed_forward = self.residuals
        attention, cross = self.self_attention, self.cross_attention
        x = around_self(x, lambda x_RD: attention.step(x_RD, cache), attention.out)
        x = around_cross(x, lambda x_RD: cross.step(x_RD, cache), cross.out)
        return around_feed_forward(x, self.feed_forward, self.feed_forward.outer)

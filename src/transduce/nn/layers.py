"""Layers of the encoder and the decoder (section 3.1): sub-layers with residual connections and layer norm."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from transduce.nn import kernels
from transduce.nn.cache import KVCache
from transduce.nn.dropout import Dropout
from transduce.nn.feed_forward import FeedForward
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention
from transduce.nn.segments import Segments

NormPlacement = Literal["post", "pre"]

Branches = tuple[Tensor, Tensor]
"""The same vectors for their two readers: the sub-layer, and the residual connection around it.

As two outputs of one kernel, their gradients come back separately and are added inside that kernel's backward pass."""


Sublayer = Callable[..., Tensor]
"""A function of (N, D), and of `bias=False` to leave out its last bias."""


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), or x + Dropout(Sublayer(LayerNorm(x))) if the norm is placed first."""

    def __init__(self, d_model: int, dropout: float, norm: NormPlacement) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.norm_first = norm == "pre"

    def forward(self, x: Branches, sublayer: Sublayer, bias_D: Tensor) -> Branches:
        """Apply a sub-layer; `bias_D` is its last bias, which `sublayer(x, bias=False)` leaves out.

        Only the fused kernel makes use of that: it adds bias, dropout, residual and norm in one pass.
        """
        x_ND, shortcut_ND = x
        if self.norm_first:
            y_ND = shortcut_ND + self.dropout(sublayer(self.norm(x_ND)))
        elif kernels.fit(x_ND):
            return self._fused(shortcut_ND, sublayer(x_ND, bias=False), bias_D)
        else:
            y_ND = self.norm(shortcut_ND + self.dropout(sublayer(x_ND)))
        return y_ND, y_ND

    def _fused(self, shortcut_ND: Tensor, sublayer_ND: Tensor, bias_D: Tensor) -> Branches:
        from transduce.nn.kernels.add_norm import AddNorm

        norm, p = self.norm, self.dropout.p if self.training else 0.0
        return AddNorm.apply(shortcut_ND, sublayer_ND, bias_D, norm.weight, norm.bias, p, norm.eps)  # type: ignore[no-untyped-call]


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(
        self, d_model: int, d_ff: int, num_heads: int, d_k: int, d_v: int, dropout: float, norm: NormPlacement
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, num_heads, d_k, d_v, causal=False)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.residuals = nn.ModuleList(Residual(d_model, dropout, norm) for _ in range(2))

    def forward(self, x: Branches, segments: Segments) -> Branches:
        """(N, D) to (N, D)."""
        around_self, around_feed_forward = self.residuals
        attention, feed_forward = self.self_attention, self.feed_forward
        x = around_self(x, lambda x_ND, **bias: attention(x_ND, segments, **bias), attention.out.bias)
        return around_feed_forward(x, feed_forward, feed_forward.outer.bias)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the encoder's output, then feed-forward."""

    def __init__(
        self, d_model: int, d_ff: int, num_heads: int, d_k: int, d_v: int, dropout: float, norm: NormPlacement
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_model, num_heads, d_k, d_v, causal=True)
        self.cross_attention = CrossAttention(d_model, num_heads, d_k, d_v)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.residuals = nn.ModuleList(Residual(d_model, dropout, norm) for _ in range(3))

    def forward(self, x: Branches, segments: Segments, memory_ND: Tensor, memory_segments: Segments) -> Branches:
        """(M, D) to (M, D), attending to the encoder's output."""
        return self._sublayers(
            x,
            lambda x_MD, **bias: self.self_attention(x_MD, segments, **bias),
            lambda x_MD, **bias: self.cross_attention(x_MD, segments, memory_ND, memory_segments, **bias),
        )

    def step(self, x: Branches, cache: KVCache) -> Branches:
        """`forward` for one new token per row, with the keys and values in the cache."""
        return self._sublayers(
            x,
            lambda x_RD, **bias: self.self_attention.step(x_RD, cache, **bias),
            lambda x_RD, **bias: self.cross_attention.step(x_RD, cache, **bias),
        )

    def _sublayers(self, x: Branches, attend_self: Sublayer, attend_cross: Sublayer) -> Branches:
        around_self, around_cross, around_feed_forward = self.residuals
        x = around_self(x, attend_self, self.self_attention.out.bias)
        x = around_cross(x, attend_cross, self.cross_attention.out.bias)
        return around_feed_forward(x, self.feed_forward, self.feed_forward.outer.bias)

"""Layers of the encoder and the decoder (section 3.1): sub-layers with residual connections and norms."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.fast import kernels
from transduce.nn.cache import KVCache
from transduce.nn.dropout import Dropout
from transduce.nn.feed_forward import Activation, FeedForward
from transduce.nn.kinds import AttentionVariant, DecoderCell, HeadSizes
from transduce.nn.kinds import NormPlacement as NormPlacement
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention
from transduce.nn.norm import NormType, make_norm
from transduce.nn.positions import Rotary
from transduce.nn.segments import Segments
from transduce.predecessors.attention_variants import VariantCrossAttention, VariantSelfAttention
from transduce.predecessors.ssru import SSRU


@dataclass(frozen=True)
class PendingSum:
    """The two terms of a residual connection, which the kernel of the next norm adds; without gradients only."""

    shortcut_ND: Tensor
    sublayer_ND: Tensor


Branches = tuple[Tensor, Tensor] | PendingSum
"""The same vectors for their two readers: the sub-layer, and the residual connection around it.

As two outputs of one kernel, their gradients come back separately and are added inside that kernel's backward pass."""


Sublayer = Callable[..., Tensor]
"""A function of (N, D), and of `bias=False` to leave out its last bias."""


def vectors(x: Branches) -> Tensor:
    """The vectors (N, D) themselves, for a reader after the last layer."""
    return x.shortcut_ND + x.sublayer_ND if isinstance(x, PendingSum) else x[0]


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
    variant: AttentionVariant | None = None
    """Attention other than the paper's."""
    cell: DecoderCell = "attention"
    """What relates a target token to earlier ones, in a decoder."""

    @property
    def bias(self) -> bool:
        """Whether linear layers have biases."""
        return self.heads.bias

    def make_self_attention(self, *, causal: bool) -> SelfAttention:
        """The self-attention of a layer."""
        if self.variant is not None:
            return VariantSelfAttention(self.d_model, self.heads, self.variant, causal=causal)
        return SelfAttention(
            self.d_model, self.heads, causal=causal, rotary=self.rotary, dropout=self.attention_dropout
        )

    def make_cross_attention(self) -> CrossAttention:
        """The cross-attention of a layer."""
        if self.variant is not None:
            return VariantCrossAttention(self.d_model, self.heads, self.variant)
        return CrossAttention(self.d_model, self.heads, dropout=self.attention_dropout)


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), or x + Dropout(Sublayer(LayerNorm(x))) if the norm is placed first."""

    def __init__(
        self,
        d_model: int,
        dropout: float,
        norm: NormPlacement,
        norm_type: NormType = "layer",
        norm_epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.norm = make_norm(norm_type, d_model, norm_epsilon)
        self.dropout = Dropout(dropout)
        self.norm_first = norm == "pre"

    def forward(self, x: Branches, sublayer: Sublayer, bias_D: Tensor | None) -> Branches:
        """Apply a sub-layer; `bias_D` is its last bias, which `sublayer(x, bias=False)` leaves out.

        Only the fused kernel makes use of that: it adds bias, dropout, residual and norm in one pass.
        """
        if self.norm_first:
            return self._norm_first(x, sublayer, bias_D)
        assert not isinstance(x, PendingSum)
        x_ND, shortcut_ND = x
        if kernels.fit(x_ND) and isinstance(self.norm, nn.LayerNorm) and bias_D is not None:
            return self._fused(shortcut_ND, sublayer(x_ND, bias=False), bias_D)
        y_ND = self.norm(shortcut_ND + self.dropout(sublayer(x_ND)))
        return y_ND, y_ND

    def _norm_first(self, x: Branches, sublayer: Sublayer, bias_D: Tensor | None) -> Branches:
        norm = self.norm
        if isinstance(x, PendingSum) or kernels.fit(x[0]):
            from transduce.fast.kernels.pre_norm import AddResidual, PreNorm, add_then_norm

            assert norm.eps is not None  # only RMSNorm would allow it
            shift_D = norm.bias if isinstance(norm, nn.LayerNorm) else None
            if isinstance(x, PendingSum):
                normed_ND, shortcut_ND = add_then_norm(x.shortcut_ND, x.sublayer_ND, norm.weight, shift_D, norm.eps)
            else:
                normed_ND, shortcut_ND = PreNorm.apply(x[0], norm.weight, shift_D, norm.eps)  # type: ignore[no-untyped-call]
            if not torch.is_grad_enabled() and not self.training:
                return PendingSum(shortcut_ND, sublayer(normed_ND))
            p = self.dropout.p if self.training else 0.0
            y_ND = AddResidual.apply(shortcut_ND, sublayer(normed_ND, bias=False), bias_D, p)  # type: ignore[no-untyped-call]
        else:
            y_ND = x[0] + self.dropout(sublayer(norm(x[0])))
        return y_ND, y_ND

    def _fused(self, shortcut_ND: Tensor, sublayer_ND: Tensor, bias_D: Tensor) -> Branches:
        from transduce.fast.kernels.add_norm import AddNorm

        norm, p = self.norm, self.dropout.p if self.training else 0.0
        return AddNorm.apply(shortcut_ND, sublayer_ND, bias_D, norm.weight, norm.bias, p, norm.eps)  # type: ignore[no-untyped-call]


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward. With `causal`, it is a layer of a decoder-only model."""

    def __init__(self, config: LayerConfig, *, causal: bool = False) -> None:
        super().__init__()
        self.self_attention = config.make_self_attention(causal=causal)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, bias=config.bias)
        self.residuals = _residuals(config, 2)

    def forward(self, x: Branches, segments: Segments, score_bias_BHTS: Tensor | None = None) -> Branches:
        """(N, D) to (N, D)."""
        return self._sublayers(x, lambda x_ND, **bias: self.self_attention(x_ND, segments, score_bias_BHTS, **bias))

    def prefill(self, x: Branches, segments: Segments) -> tuple[Branches, Tensor, Tensor]:
        """`forward`, with the keys and values of self-attention, for a cache."""
        kept: list[Tensor] = []

        def attend_self(x_ND: Tensor, *, bias: bool = True) -> Tensor:
            output_ND, *keys_and_values = self.self_attention.prefill(x_ND, segments, bias=bias)
            kept.extend(keys_and_values)
            return output_ND

        x = self._sublayers(x, attend_self)
        k_NHK, v_NHK = kept
        return x, k_NHK, v_NHK

    def step(self, x: Branches, position_R: Tensor, cache: KVCache) -> Branches:
        """`forward` for one new token per row, with the keys and values in the cache."""
        return self._sublayers(x, lambda x_RD, **bias: self.self_attention.step(x_RD, position_R, cache, **bias))

    def _sublayers(self, x: Branches, attend_self: Sublayer) -> Branches:
        around_self, around_feed_forward = self.residuals
        x = around_self(x, attend_self, self.self_attention.out.bias)
        return around_feed_forward(x, self.feed_forward, self.feed_forward.outer.bias)


class DecoderLayer(nn.Module):
    """Causal self-attention (or a recurrent unit), attention over the encoder's output, then feed-forward."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.self_attention: SelfAttention | SSRU
        self.self_attention = SSRU(config.d_model) if config.cell == "ssru" else config.make_self_attention(causal=True)
        self.cross_attention = config.make_cross_attention()
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, bias=config.bias)
        self.residuals = _residuals(config, 3)

    def forward(
        self,
        x: Branches,
        segments: Segments,
        memory_ND: Tensor,
        memory_segments: Segments,
        score_bias_BHTS: Tensor | None = None,
    ) -> Branches:
        """(M, D) to (M, D), attending to the encoder's output."""
        return self._sublayers(
            x,
            lambda x_MD, **bias: self.self_attention(x_MD, segments, score_bias_BHTS, **bias),
            lambda x_MD, **bias: self.cross_attention(x_MD, segments, memory_ND, memory_segments, **bias),
        )

    def step(self, x: Branches, position_R: Tensor, cache: KVCache, score_bias_RHT: Tensor | None = None) -> Branches:
        """`forward` for one new token per row, with the keys and values in the cache."""
        return self._sublayers(
            x,
            lambda x_RD, **bias: self.self_attention.step(x_RD, position_R, cache, score_bias_RHT, **bias),
            lambda x_RD, **bias: self.cross_attention.step(x_RD, cache, **bias),
        )

    def _sublayers(self, x: Branches, attend_self: Sublayer, attend_cross: Sublayer) -> Branches:
        around_self, around_cross, around_feed_forward = self.residuals
        last_bias_D = None if isinstance(self.self_attention, SSRU) else self.self_attention.out.bias
        x = around_self(x, attend_self, last_bias_D)
        x = around_cross(x, attend_cross, self.cross_attention.out.bias)
        return around_feed_forward(x, self.feed_forward, self.feed_forward.outer.bias)


def _residuals(config: LayerConfig, count: int) -> nn.ModuleList:
    return nn.ModuleList(
        Residual(config.d_model, config.dropout, config.norm, config.norm_type, config.norm_epsilon)
        for _ in range(count)
    )

"""Fused modules: the computations of `nn/` in fewer passes over memory, with the same parameters and names.

With post-norm, vectors go from one fused module to the next as two references to one tensor, one for the sub-layer and
one for the residual connection around it. As two outputs of one kernel, their gradients come back separately and are
added inside that kernel's backward pass. With pre-norm, they go as `PendingSum`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.fast.adjacent_heads import split_adjacent_heads
from transduce.fast.kernels import HAS_TRITON
from transduce.fast.kernels.packed_attention import attend_packed
from transduce.fast.sublayers import connections, last_projection
from transduce.models.model import Model
from transduce.nn.embedding import Embedding
from transduce.nn.feed_forward import GATED, FeedForward
from transduce.nn.layers import DecoderLayer, EncoderLayer, Residual
from transduce.nn.linear import Linear
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention
from transduce.nn.norm import LayerNorm

if HAS_TRITON:
    from transduce.fast.kernels.activation import Activation, LinearActivation
    from transduce.fast.kernels.add_norm import AddNorm
    from transduce.fast.kernels.cross_entropy import smoothed_cross_entropy
    from transduce.fast.kernels.embed import Embed
    from transduce.fast.kernels.few_rows import few_rows_linear, few_rows_parts, suits
    from transduce.fast.kernels.float8 import Float8FeedForward, Float8Linear, Float8Scales, Sites, suits_float8
    from transduce.fast.kernels.linear import LinearRelu
    from transduce.fast.kernels.pre_norm import AddThenNorm
    from transduce.fast.kernels.rotary import RotateHeads


def fuse(model: Model) -> None:
    """Replace the modules of a model by fused ones; it must be on a CUDA GPU, in half precision.

    Without Triton, only attention is replaced. Residual connections with a second norm (Gemma) stay as they are, and so
    do the embedding and the final norm beside them.
    """
    modules = list(model.modules())
    for module in modules:
        module.__class__ = _ATTENTION.get(type(module), type(module))
    if not HAS_TRITON:
        return
    model.cross_entropy = smoothed_cross_entropy
    for module in modules:
        module.__class__ = _FUSED_PRODUCTS.get(type(module), type(module))
    if getattr(model.config, "norm", "post") == "both":
        return
    for module in modules:
        module.__class__ = _FUSED_CONNECTIONS.get(type(module), type(module))
    for module in modules:
        if isinstance(module, EncoderLayer | DecoderLayer):
            for residual, sublayer in connections(module):
                last = last_projection(sublayer)
                if last is not None and (last.bias is None or residual.adds_bias):
                    last.__class__ = LinearWithoutBias
    for name in ("encoder_norm", "decoder_norm"):
        if norm := getattr(model, name, None):
            norm.__class__ = _FINAL_NORMS[type(norm)]


def use_float8(model: Model) -> "Float8Scales":
    """Compute the products of a fused model's layers in 8 bits where gradients are computed; returns their scales."""
    layers = [module for module in model.modules() if isinstance(module, FusedLinear)]
    layers = [layer for layer in layers if suits_float8(layer.weight)]
    scales = Float8Scales(len(layers) + 1, model.device)
    for number, layer in enumerate(layers):
        layer.float8 = scales.sites(number)
    model.cross_entropy = partial(smoothed_cross_entropy, float8=scales.sites(len(layers)))
    return scales


def fits(model: Model) -> bool:
    """Whether `fuse` supports a model: half precision, on a CUDA GPU."""
    weight_VD = model.output_weight_VD
    return weight_VD.is_cuda and weight_VD.dtype in (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class PendingSum:
    """A residual connection whose terms the kernel of the next norm adds."""

    shortcut_ND: Tensor
    sublayer_PND: Tensor | None = None
    """The sub-layer's output as terms whose sum it is."""
    bias_D: Tensor | None = None
    p: float = 0.0
    """The dropout of the sub-layer's output."""

    def then_norm(self, norm: nn.LayerNorm | nn.RMSNorm) -> tuple[Tensor, Tensor]:
        """The norm of the sum, and the sum."""
        assert norm.eps is not None  # only RMSNorm would allow it
        shift_D = norm.bias if isinstance(norm, nn.LayerNorm) else None
        terms = self.shortcut_ND, self.sublayer_PND, self.bias_D
        normed_ND, sum_ND = AddThenNorm.apply(*terms, norm.weight, shift_D, self.p, norm.eps)
        return normed_ND, sum_ND


def _branches(x: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The two references of a tensor that another module has computed, or those of a fused one."""
    return (x, x) if isinstance(x, Tensor) else x


def _terms(sublayer: Tensor) -> Tensor:
    """The output of a sub-layer as terms (P, N, D) whose sum it is."""
    return sublayer if sublayer.dim() == 3 else sublayer[None]


class FusedLinear(Linear):
    """The gradient of the bias is a matrix product, which is several times faster than torch's sum over rows."""

    float8: "Sites | None" = None

    def forward(self, x_ND: Tensor) -> Tensor:
        if self.float8 is not None and torch.is_grad_enabled():
            return Float8Linear.apply(x_ND, self.weight, self.bias, self.float8)
        if suits(x_ND, self.weight):
            return few_rows_linear(x_ND, self.weight, self.bias)
        if self.bias is None:
            return F.linear(x_ND, self.weight)
        return LinearRelu.apply(x_ND, self.weight, self.bias, False)


class LinearWithoutBias(FusedLinear):
    """The last projection of a sub-layer: the residual connection around it adds the bias, and terms of few rows."""

    def forward(self, x_ND: Tensor) -> Tensor:
        if self.float8 is not None and torch.is_grad_enabled():
            return Float8Linear.apply(x_ND, self.weight, None, self.float8)
        if not self.training and suits(x_ND, self.weight):
            return few_rows_parts(x_ND, self.weight)
        return F.linear(x_ND, self.weight)


class FusedFeedForward(FeedForward):
    """The activation is fused into the product before it, or into one pass after it."""

    def forward(self, x_ND: Tensor) -> Tensor:
        inner, outer = self.inner, self.outer
        sites = inner.float8, outer.float8
        if self.activation not in GATED and all(sites) and torch.is_grad_enabled():
            weights = inner.weight, inner.bias, outer.weight
            y_ND = Float8FeedForward.apply(x_ND, *weights, self.activation, sites)
            return y_ND if isinstance(outer, LinearWithoutBias) or outer.bias is None else y_ND + outer.bias
        if inner.float8 is not None and torch.is_grad_enabled():
            y_NF = Activation.apply(inner(x_ND), self.activation)
        elif self.activation not in GATED and suits(x_ND, inner.weight):
            y_NF = few_rows_linear(x_ND, inner.weight, inner.bias, self.activation)
        elif self.activation != "relu":
            y_NF = LinearActivation.apply(x_ND, inner.weight, inner.bias, self.activation)
        elif inner.bias is not None:
            y_NF = LinearRelu.apply(x_ND, inner.weight, inner.bias, True)
        else:
            y_NF = inner(x_ND).relu_()
        return outer(y_NF)


class PackedSelfAttention(SelfAttention):
    """Attention without padding; the gradients of queries, keys and values are adjacent in memory."""

    attend = staticmethod(attend_packed)
    split_heads = staticmethod(split_adjacent_heads)


class RotatedSelfAttention(PackedSelfAttention):
    """Queries and keys are rotated in place, before they are split, unless they are normalized first."""

    def project(self, x_ND: Tensor, position_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.rotary is None or not isinstance(self.q_norm, nn.Identity):
            return super().project(x_ND, position_N)
        heads, waves_TK = self.heads, self.rotary.waves_TK
        joint_ND = RotateHeads.apply(self.qkv(x_ND), position_N, waves_TK, heads.num_heads + heads.kv_heads)
        return self.divide(joint_ND)


class PackedCrossAttention(CrossAttention):
    """See `PackedSelfAttention`."""

    attend = staticmethod(attend_packed)
    split_heads = staticmethod(split_adjacent_heads)


class FusedEmbedding(Embedding):
    """Lookup, scale, position and dropout in one pass, if positions are fixed and nothing is normalized."""

    def embed(self, token_N: Tensor, position_N: Tensor, weight_VD: Tensor) -> Any:
        table_TD = None if self.positions is None else self.positions.table_TD
        if table_TD is None or table_TD.requires_grad or self.norm is not None:
            return super().embed(token_N, position_N, weight_VD)
        p = self.dropout.p if self.training else 0.0
        return Embed.apply(token_N, position_N, weight_VD, table_TD, self.scale, p)


class FusedResidual(Residual):
    """Bias, dropout, residual connection and norm in one pass: the norm after it or, with pre-norm, the next one."""

    @property
    def adds_bias(self) -> bool:
        """Whether the bias of the sub-layer's last projection is added here."""
        return self.norm_first or isinstance(self.norm, nn.LayerNorm)

    def forward(self, x: Any, sublayer: Callable[..., Tensor], *args: Any) -> Any:
        last = last_projection(sublayer)
        bias_D = last.bias if isinstance(last, LinearWithoutBias) else None
        p = self.dropout.p if self.training else 0.0
        if self.norm_first:
            pending = x if isinstance(x, PendingSum) else PendingSum(_branches(x)[0])
            normed_ND, x_ND = pending.then_norm(self.norm)
            return PendingSum(x_ND, _terms(sublayer(normed_ND, *args)), bias_D, p)
        x_ND, shortcut_ND = _branches(x)
        sublayer_ND, norm = sublayer(x_ND, *args), self.norm
        if not torch.is_grad_enabled() and not self.training:
            return PendingSum(shortcut_ND, _terms(sublayer_ND), bias_D).then_norm(norm)[0]
        if bias_D is not None:
            return AddNorm.apply(shortcut_ND, sublayer_ND, bias_D, norm.weight, norm.bias, p, norm.eps)
        return norm(shortcut_ND + self.dropout(sublayer_ND))


class FinalLayerNorm(LayerNorm):
    """The norm after a pre-norm stack."""

    def forward(self, x: Any) -> Tensor:
        return _final_norm(self, x, super().forward)


class FinalRMSNorm(nn.RMSNorm):
    """See `FinalLayerNorm`."""

    def forward(self, x: Any) -> Tensor:
        return _final_norm(self, x, super().forward)


class FinalVectors(nn.Identity):
    """The end of a post-norm stack, which already ends in a norm."""

    def forward(self, x: Any) -> Tensor:
        return _branches(x)[0]


def _final_norm(norm: nn.LayerNorm | nn.RMSNorm, x: Any, plain: Callable[[Tensor], Tensor]) -> Tensor:
    return x.then_norm(norm)[0] if isinstance(x, PendingSum) else plain(_branches(x)[0])


_ATTENTION: dict[type[nn.Module], type[nn.Module]] = {
    SelfAttention: PackedSelfAttention,
    CrossAttention: PackedCrossAttention,
}
_FUSED_PRODUCTS: dict[type[nn.Module], type[nn.Module]] = {
    FeedForward: FusedFeedForward,
    Linear: FusedLinear,
    PackedSelfAttention: RotatedSelfAttention,
}
_FUSED_CONNECTIONS: dict[type[nn.Module], type[nn.Module]] = {Embedding: FusedEmbedding, Residual: FusedResidual}
"""Modules that pass on two references, or a `PendingSum`."""
_FINAL_NORMS: dict[type[nn.Module], type[nn.Module]] = {
    LayerNorm: FinalLayerNorm,
    nn.RMSNorm: FinalRMSNorm,
    nn.Identity: FinalVectors,
}

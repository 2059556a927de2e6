"""Layers whose sub-layers differ from the paper's: other scores, restricted attention, or a recurrent unit."""

from dataclasses import dataclass

from torch import nn

from transduce.nn.kinds import AttentionVariant, DecoderCell
from transduce.nn.layers import LayerConfig
from transduce.nn.multi_head_attention import CrossAttention
from transduce.predecessors.attention_variants import VariantCrossAttention, VariantSelfAttention
from transduce.predecessors.ssru import SSRU


@dataclass(frozen=True, kw_only=True)
class VariantLayerConfig(LayerConfig):
    """The settings of such layers."""

    variant: AttentionVariant | None
    """In what attention differs from the paper's."""
    cell: DecoderCell
    """What relates a target token to earlier ones, in a decoder."""

    def make_self_attention(self, *, causal: bool) -> nn.Module:
        """See `LayerConfig`."""
        if causal and self.cell == "ssru":
            return SSRU(self.d_model)
        if self.variant is None:
            return super().make_self_attention(causal=causal)
        return VariantSelfAttention(self.d_model, self.heads, self.variant, causal=causal)

    def make_cross_attention(self) -> CrossAttention:
        """See `LayerConfig`."""
        if self.variant is None:
            return super().make_cross_attention()
        return VariantCrossAttention(self.d_model, self.heads, self.variant)

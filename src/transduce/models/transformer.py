"""What all Transformers have in common: the parts that are built from their settings."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from transduce.features import HOOKS, Registry
from transduce.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transduce.models.config import TransformerConfig as TransformerConfig
from transduce.models.model import Model
from transduce.nn.embedding import PLAIN_DEVIATION, Embedding
from transduce.nn.kinds import ADDED
from transduce.nn.layers import LayerConfig
from transduce.nn.linear import draw_normal, scale_residual_outputs
from transduce.nn.norm import make_norm
from transduce.nn.positions import Positions, Rotary
from transduce.nn.rotary_rates import RotaryRates

FRONT_ENDS: Registry[type[nn.Module]] = Registry("front_ends")


def make_rotary(config: TransformerConfig, *, local: bool = False) -> Rotary | None:
    """The rotation of queries and keys, if positions are rotary; `local` of layers with a window."""
    if config.positions != "rotary":
        return None
    rates = RotaryRates(config.head_widths[0], config.rotary_base)
    if isinstance(config, DecoderOnlyConfig):
        rates = config.rotary_rates(local=local)
    return Rotary(config.max_positions, rates)


def layer_config(config: TransformerConfig, rotary: Rotary | None) -> LayerConfig:
    same = (field.name for field in fields(LayerConfig) if hasattr(config, field.name))
    settings: dict[str, Any] = {**{name: getattr(config, name) for name in same}, "rotary": rotary, "window": None}
    cell = config.decoder_cell if isinstance(config, EncoderDecoderConfig) else "attention"
    if config.attention_variant is None and cell == "attention":
        return LayerConfig(**settings)
    layer: LayerConfig = HOOKS["variant_layers"](**settings, variant=config.attention_variant, cell=cell)
    return layer


def make_front_end(source: str, config: TransformerConfig) -> nn.Module:
    """The module that reads a source other than text: packed numbers and their segments to (N, D) and segments."""
    return FRONT_ENDS[source](config)


def make_embedding(config: TransformerConfig, vocab_size: int | None) -> Embedding:
    """Token embeddings with the positional encoding that is added to them, if there is one."""
    adds_positions = config.positions in ADDED
    positions = Positions(config.positions, config.max_positions, config.d_model) if adds_positions else None
    norm = make_model_norm(config) if config.embedding == "normalized" else None
    return Embedding(vocab_size, positions, config.d_model, config.dropout, config.embedding, norm)


def initialize(config: TransformerConfig, stack: nn.ModuleList, sublayers: int) -> None:
    """Set the initial weights of a stack of layers.

    Xavier's are made for embeddings that are scaled to unit variance; without scaling, they are too large beside
    the embeddings, and the first thousand steps are slower (docs/log.md).
    """
    if config.embedding != "scaled":
        draw_normal(stack, PLAIN_DEVIATION)
    scale_residual_outputs(stack, sublayers)


def make_final_norm(config: TransformerConfig) -> nn.Module:
    """The norm after a stack: a post-norm stack already ends in one."""
    return nn.Identity() if config.norm == "post" else make_model_norm(config)


def make_model_norm(config: TransformerConfig) -> nn.Module:
    return make_norm(config.norm_type, config.d_model, config.norm_epsilon)


class OutputProjection(nn.Module):
    """The output projection, as far as it is not the embeddings (`tie_output`), and the bias of the logits."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.weight_VD = None
        if not config.tie_output:
            self.weight_VD = nn.Parameter(torch.randn(vocab_size, config.d_model) * config.d_model**-0.5)
        self.bias_V = nn.Parameter(torch.zeros(vocab_size)) if config.output_bias else None
        self._fixed = isinstance(config, EncoderDecoderConfig) and config.decoder_tag

    @property
    def used_bias_V(self) -> Tensor | None:
        """The bias, which gets no gradient in models such as M2M-100: there it only excludes tokens."""
        if self.bias_V is None or not self._fixed or not self.training:
            return self.bias_V
        return self.bias_V.detach() + 0.0 * self.bias_V

    def weight_of(self, embedding: Embedding) -> Tensor:
        return embedding.used_weight_VD if self.weight_VD is None else self.weight_VD


class Transformer(Model):
    """What the models that predict tokens from embeddings have in common."""

    embedding: Embedding
    rotary: Rotary | None
    output: OutputProjection

    @property
    def output_weight_VD(self) -> Tensor:
        """See `Model`: in the paper, the embedding matrix (section 3.4)."""
        return self.output.weight_of(self.embedding)

    @property
    def output_bias_V(self) -> Tensor | None:
        return self.output.used_bias_V

    def reserve(self, length: int) -> None:
        """See `Model`: sinusoids and rotations are computed up to this position."""
        for positions in (self.embedding.positions, self.rotary):
            if positions is not None:
                positions.require(length)

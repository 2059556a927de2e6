"""What all Transformers have in common: the settings in which members of the family differ, and their parts."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from transduce.config import require
from transduce.models.model import Model, ModelConfig
from transduce.nn.embedding import PLAIN_DEVIATION, Embedding, EmbeddingKind
from transduce.nn.feed_forward import Activation
from transduce.nn.layers import LayerConfig, NormPlacement
from transduce.nn.linear import draw_normal, scale_residual_outputs
from transduce.nn.multi_head_attention import HeadSizes
from transduce.nn.norm import NormType, make_norm
from transduce.nn.positions import ADDED, PositionKind, Positions, Rotary


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    """Sizes, and the settings in which later models differ from the paper's, whose values are the defaults."""

    d_ff: int = 2048
    """Inner width of the feed-forward network."""
    num_heads: int = 8
    """h, the number of attention heads."""
    kv_heads: int | None = None
    """Heads of keys and values, each shared by a group of heads (grouped-query attention); by default num_heads."""
    d_k: int | None = None
    """Width of a head's queries and keys; d_model / num_heads if not given."""
    d_v: int | None = None
    """Width of a head's values; d_model / num_heads if not given."""
    dropout: float = 0.1
    """P_drop: dropout on every sub-layer's output and on the embeddings (section 5.4)."""
    positions: PositionKind = "sinusoidal"
    """Positional encoding: the paper's sinusoids, those of Marian, learned vectors (Table 3, row E), rotations of
    queries and keys (Llama), or a learned bias of the scores by distance (T5)."""
    max_positions: int = 1024
    """Number of learned positions; the others have no limit."""
    rotary_base: float = 10_000.0
    """Base of the wavelengths of rotary positions."""
    norm: NormPlacement = "post"
    """Norm after the residual connection, as in the paper, or before the sub-layer."""
    norm_type: NormType = "layer"
    """Layer norm, as in the paper, or root mean square norm (RMSNorm)."""
    norm_epsilon: float = 1e-5
    """Number that norms add to the variance."""
    activation: Activation = "relu"
    """Activation of the feed-forward network; geglu and swiglu are gated."""
    bias: bool = True
    """Whether linear layers have biases."""
    embedding: EmbeddingKind = "scaled"
    """Embeddings times sqrt(d_model), as in the paper, plain, or normalized after adding positions (BERT, BART)."""
    tie_output: bool = True
    """Use the embeddings as the output projection, as in the paper; otherwise it has a matrix of its own."""
    output_bias: bool = False
    """Whether the logits have a bias."""

    def __post_init__(self) -> None:
        for name in ("d_model", "d_ff", "num_heads", "max_positions", *self.layer_counts):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        for name in ("d_k", "d_v"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} must be at least 1")
            divides = self.d_model % self.num_heads == 0
            require(value is not None or divides, f"num_heads must divide d_model, or give {name}")
        groups = self.num_heads if self.kv_heads is None else self.kv_heads
        require(groups >= 1 and self.num_heads % groups == 0, "kv_heads must divide num_heads")
        require(self.max_positions <= 2**16, "max_positions must be at most 65536")
        require(0 <= self.dropout < 1, "dropout must be at least 0 and below 1")
        require(0 < self.norm_epsilon < 1, "norm_epsilon must be above 0 and below 1")
        require(self.rotary_base > 1, "rotary_base must be above 1")
        rotary = self.positions == "rotary"
        require(not rotary or self.head_widths[0] % 2 == 0, "rotary positions need an even d_k")
        require(self.positions != "marian" or self.d_model % 2 == 0, "Marian's positions need an even d_model")
        require(rotary or self.rotary_base == 10_000.0, 'rotary_base has no effect without positions = "rotary"')
        adds = self.positions in ADDED
        require(
            self.embedding != "normalized" or adds,
            'embedding = "normalized" normalizes the sum with positions: use positions = "learned" or "sinusoidal"',
        )

    @property
    def layer_counts(self) -> Sequence[str]:
        """The settings that are numbers of layers."""
        return ()

    @property
    def head_widths(self) -> tuple[int, int]:
        """d_k and d_v."""
        width = self.d_model // self.num_heads
        return self.d_k or width, self.d_v or width

    @property
    def heads(self) -> HeadSizes:
        """The sizes of the attention heads."""
        d_k, d_v = self.head_widths
        return HeadSizes(
            num_heads=self.num_heads, d_k=d_k, d_v=d_v, kv_heads=self.kv_heads or self.num_heads, bias=self.bias
        )

    @property
    def sublayer_parameters(self) -> tuple[int, int]:
        """The elements of the matrices of an attention module and of a feed-forward network."""
        heads = self.heads
        attention = self.d_model * (heads.num_heads + heads.kv_heads) * (heads.d_k + heads.d_v)
        return attention, self.d_model * self.d_ff * (3 if self.activation in ("geglu", "swiglu") else 2)

    def min_parameters(self, vocab_size: int) -> int:
        """See `ModelConfig`: the elements of the embeddings and, if it is separate, of the output projection."""
        return vocab_size * self.d_model * (1 if self.tie_output else 2)

    def sizes(self) -> dict[str, Any]:
        """See `ModelConfig`; dropout is not included."""
        d_k, d_v = self.head_widths
        return asdict(replace(self, dropout=0.0, d_k=d_k, d_v=d_v, kv_heads=self.heads.kv_heads))

    def make_rotary(self) -> Rotary | None:
        """The rotation of queries and keys, if positions are rotary."""
        if self.positions != "rotary":
            return None
        return Rotary(self.max_positions, self.head_widths[0], self.rotary_base)

    def layer(self, rotary: Rotary | None) -> LayerConfig:
        """The settings of every layer."""
        return LayerConfig(
            d_model=self.d_model,
            d_ff=self.d_ff,
            heads=self.heads,
            dropout=self.dropout,
            norm=self.norm,
            norm_type=self.norm_type,
            norm_epsilon=self.norm_epsilon,
            activation=self.activation,
            rotary=rotary,
        )

    def make_embedding(self, vocab_size: int | None) -> Embedding:
        """Token embeddings with the positional encoding that is added to them, if there is one."""
        adds_positions = self.positions in ADDED
        positions = Positions(self.positions, self.max_positions, self.d_model) if adds_positions else None
        norm = self.make_norm() if self.embedding == "normalized" else None
        return Embedding(vocab_size, positions, self.d_model, self.dropout, self.embedding, norm)

    def initialize(self, stack: nn.ModuleList, sublayers: int) -> None:
        """Set the initial weights of a stack of layers.

        Xavier's are made for embeddings that are scaled to unit variance; without scaling, they are too large beside
        the embeddings, and the first thousand steps are slower (docs/log.md).
        """
        if self.embedding != "scaled":
            draw_normal(stack, PLAIN_DEVIATION)
        scale_residual_outputs(stack, sublayers)

    def make_final_norm(self) -> nn.Module:
        """The norm after a stack: a post-norm stack already ends in one."""
        return self.make_norm() if self.norm == "pre" else nn.Identity()

    def make_norm(self) -> nn.Module:
        """A norm of this model's kind."""
        return make_norm(self.norm_type, self.d_model, self.norm_epsilon)


class Output(nn.Module):
    """The output projection, as far as it is not the embeddings (`tie_output`), and the bias of the logits."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.weight_VD = None
        if not config.tie_output:
            self.weight_VD = nn.Parameter(torch.randn(vocab_size, config.d_model) * config.d_model**-0.5)
        self.bias_V = nn.Parameter(torch.zeros(vocab_size)) if config.output_bias else None

    def weight_of(self, embedding: Embedding) -> Tensor:
        """The output projection (V, D)."""
        return embedding.used_weight_VD if self.weight_VD is None else self.weight_VD


class Transformer(Model):
    """What the models that predict tokens from embeddings have in common."""

    embedding: Embedding
    rotary: Rotary | None
    output: Output

    @property
    def output_weight_VD(self) -> Tensor:
        """See `Model`: in the paper, the embedding matrix (section 3.4)."""
        return self.output.weight_of(self.embedding)

    @property
    def output_bias_V(self) -> Tensor | None:
        """See `Model`."""
        return self.output.bias_V

    def reserve(self, length: int) -> None:
        """See `Model`: sinusoids and rotations are computed up to this position."""
        for positions in (self.embedding.positions, self.rotary):
            if positions is not None:
                positions.require(length)

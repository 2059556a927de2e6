"""The encoder by itself: it reads a text or an image and predicts masked tokens or a class (BERT, RoBERTa, ViT).

Since 2017: no decoder; positions are learned vectors and the activation is GELU; BERT normalizes the embeddings, and
predicts tokens through one more layer; ViT reads patches of an image as tokens, and has the norm before the sub-layer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from transduce.config import require
from transduce.data.batch import Batch
from transduce.models.config import TransformerConfig
from transduce.models.model import Model
from transduce.models.transformer import (
    OutputProjection,
    initialize,
    layer_config,
    make_embedding,
    make_final_norm,
    make_front_end,
    make_model_norm,
    make_rotary,
)
from transduce.nn.dropout import Dropout
from transduce.nn.embedding import Embedding
from transduce.nn.feed_forward import activate
from transduce.nn.layers import EncoderLayer
from transduce.nn.linear import projections
from transduce.nn.segments import Segments


@dataclass(frozen=True, kw_only=True)
class EncoderOnlyConfig(TransformerConfig):
    """The sizes of an encoder-only model."""

    architecture: str = "encoder_only"
    """Name of the architecture in the table of models (models/registry.py)."""
    layers: int = 6
    """Number of layers."""
    source: Literal["text", "image"] = "text"
    """What the model reads."""
    classes: int = 0
    """Number of classes of a classifier; 0: the model predicts masked tokens."""
    masked_head: bool = True
    """Whether one more layer precedes the output projection, if the model predicts masked tokens (BERT)."""
    pooling: Literal["first", "mean"] = "first"
    """The vector of a text that is classified: that of its first token, or the mean of all tokens."""
    pooler: bool = False
    """Whether the classifier has a layer with tanh before its projection (BERT)."""
    image_height: int = 0
    """Height of images in pixels; training takes it from the images."""
    image_width: int = 0
    """Width of images in pixels, likewise."""
    channels: int = 1
    """Numbers per pixel: 1 for grey, 3 for colour; likewise."""
    patch_size: int = 4
    """Height and width of the square patches that images are cut into."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.positions != "relative", "relative positions are for the architecture encoder_decoder")
        require(self.classes >= 0, "classes must be at least 0")
        for name, least in (("image_height", 0), ("image_width", 0), ("channels", 1), ("patch_size", 1)):
            require(getattr(self, name) >= least, f"{name} must be at least {least}")
        if self.source == "image":
            require(self.classes > 0, "a model that reads images needs classes")
            fits = self.image_height % self.patch_size == 0 and self.image_width % self.patch_size == 0
            require(fits, "patch_size must divide image_height and image_width")

    @property
    def layer_counts(self) -> Sequence[str]:
        return ("layers",)

    def min_parameters(self, vocab_size: int) -> int:
        inputs = super().min_parameters(vocab_size)
        if self.source == "image":
            area = self.patch_size**2
            inputs = (self.image_height * self.image_width // area + self.channels * area) * self.d_model
        return inputs + self.classes * self.d_model + self.layers * sum(self.sublayer_parameters)


class MaskedHead(nn.Module):
    """One more layer before the output projection: a linear layer, the activation and a norm (BERT)."""

    def __init__(self, config: EncoderOnlyConfig) -> None:
        super().__init__()
        self.linear, self.norm = projections(config.d_model, [config.d_model]), make_model_norm(config)
        self.activation = config.activation

    def forward(self, x_LD: Tensor) -> Tensor:
        return self.norm(activate(self.linear(x_LD), self.activation))


class ClassHead(nn.Module):
    """The projection to classes, after a layer with tanh if there is a pooler."""

    def __init__(self, config: EncoderOnlyConfig) -> None:
        super().__init__()
        self.pooler = projections(config.d_model, [config.d_model]) if config.pooler else None
        self.dropout = Dropout(config.dropout)
        self.weight_CD = nn.Parameter(torch.randn(config.classes, config.d_model) * 0.02)
        self.bias_C = nn.Parameter(torch.zeros(config.classes))

    def forward(self, x_BD: Tensor) -> Tensor:
        """The vectors that the projection reads."""
        return self.dropout(x_BD if self.pooler is None else self.pooler(x_BD).tanh())


class EncoderOnly(Model):
    """A model that predicts masked tokens (`positions_L`), or one class for each text or image."""

    config: EncoderOnlyConfig

    def __init__(self, config: EncoderOnlyConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.embedding: nn.Module
        self.embedding = (
            make_embedding(config, vocab_size) if config.source == "text" else make_front_end(config.source, config)
        )
        self.rotary = make_rotary(config)
        layer = layer_config(config, self.rotary)
        self.encoder = nn.ModuleList(EncoderLayer(layer) for _ in range(config.layers))
        initialize(config, self.encoder, sublayers=2)
        self.encoder_norm = make_final_norm(config)
        self.head: ClassHead | MaskedHead | nn.Identity
        if config.classes:
            self.head = ClassHead(config)
        else:
            self.head = MaskedHead(config) if config.masked_head else nn.Identity()
        self.output = None if config.classes else OutputProjection(config, vocab_size)

    def forward(self, batch: Batch) -> Tensor:
        """See `Model`: a vector for each masked token or, in a classifier, for each text or image."""
        hidden_ND, segments = self.encode(batch)
        if isinstance(self.head, ClassHead):
            return self.head(self._pool(hidden_ND, segments))
        return self.head(hidden_ND if batch.positions_L is None else hidden_ND[batch.positions_L])

    def encode(self, batch: Batch) -> tuple[Tensor, Segments]:
        """The vectors (N, D) of all tokens or patches of the stream `text` or `image`, and their segments."""
        x_ND, segments = self._read(batch)
        for layer in self.encoder:
            x_ND = layer(x_ND, segments)
        return self.encoder_norm(x_ND), segments

    def _read(self, batch: Batch) -> tuple[Tensor, Segments]:
        if self.config.source != "text":
            image = batch[self.config.source]
            return self.embedding(image.ids_N, image.segments)
        text = batch["text"]
        self.reserve(text.segments.longest)
        return self.embedding(text.ids_N, text.segments.position_N), text.segments

    def _pool(self, hidden_ND: Tensor, segments: Segments) -> Tensor:
        """One vector for each segment; zeros for an empty one."""
        if self.config.pooling == "first":
            first_B = segments.offsets_B1[:-1].long().clamp(max=max(len(hidden_ND) - 1, 0))
            return hidden_ND[first_B]
        return mean_of_segments(hidden_ND, segments)

    @property
    def output_weight_VD(self) -> Tensor:
        """See `Model`: of a classifier, the projection to classes."""
        if isinstance(self.head, ClassHead):
            return self.head.weight_CD
        assert self.output is not None
        assert isinstance(self.embedding, Embedding)
        return self.output.weight_of(self.embedding)

    @property
    def output_bias_V(self) -> Tensor | None:
        return self.head.bias_C if isinstance(self.head, ClassHead) else self.output.bias_V if self.output else None

    @property
    def longest(self) -> int | None:
        """See `Model`: the number of learned positions."""
        learned = self.config.positions == "learned" and self.config.source == "text"
        return self.config.max_positions - 1 if learned else None

    def reserve(self, length: int) -> None:
        """See `Model`: sinusoids and rotations are computed up to this position."""
        added = self.embedding.positions if isinstance(self.embedding, Embedding) else None
        for positions in (added, self.rotary):
            if positions is not None:
                positions.require(length)

    @property
    def captures(self) -> bool:
        """See `Model`: not if attention needs a padded grid, whose shape depends on the batch."""
        return self.config.packs_attention

    def layers(self) -> Iterable[nn.Module]:
        return self.encoder


def mean_of_segments(x_ND: Tensor, segments: Segments) -> Tensor:
    """The mean vector (B, D) of the tokens of each segment; zeros for an empty one."""
    sums_BD = x_ND.new_zeros(len(segments), x_ND.shape[1]).index_add(0, segments.segment_N, x_ND)
    return sums_BD / segments.lengths_B.clamp(min=1)[:, None].to(x_ND.dtype)

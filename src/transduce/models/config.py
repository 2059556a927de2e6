"""The settings of the Transformers, without torch; those of other architectures are beside their models."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from transduce.config import require
from transduce.nn.kinds import (
    ADDED,
    MAX_PACKED_WIDTH,
    Activation,
    AttentionVariant,
    DecoderCell,
    EmbeddingKind,
    HeadSizes,
    NormPlacement,
    NormType,
    PositionKind,
    RotaryScaling,
    Score,
)
from transduce.nn.rotary_rates import RotaryRates

_DEEP = 6
"""Number of decoder layers from which the last but one aligns better than the last (docs/log.md)."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The settings of every architecture; each architecture adds its own."""

    architecture: str = "encoder_decoder"
    """Name of the architecture in the table of models (models/registry.py)."""
    d_model: int = 512
    """Width of every token's vector."""

    def min_parameters(self, vocab_size: int) -> int:
        """A lower bound on the number of parameters, computed before anything is allocated."""
        return vocab_size * self.d_model

    @property
    def layer_counts(self) -> Sequence[str]:
        """The settings that are numbers of layers, each of which takes the output of the one before."""
        return ()

    def sizes(self) -> dict[str, Any]:
        """The settings that decide the shapes and the meaning of the weights."""
        return asdict(self)


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
    attention: Score = "scaled"
    """Scores of attention: scaled dot products, as in the paper, or, for comparison, unscaled or additive ones (section
    3.2.1)."""
    neighbourhood: int | None = None
    """r of restricted self-attention (section 4): a position attends to r // 2 positions on each side; by default to
    all."""
    dropout: float = 0.1
    """P_drop: dropout on every sub-layer's output and on the embeddings (section 5.4)."""
    attention_dropout: float = 0.0
    """Dropout on the attention weights; in the paper only for parsing (section 6.3)."""
    positions: PositionKind = "sinusoidal"
    """Positional encoding: the paper's sinusoids, those of Marian or fairseq (M2M-100), learned vectors (Table 3, row
    E), rotations of queries and keys (Llama), or a learned bias of the scores by distance (T5)."""
    max_positions: int = 1024
    """Number of learned positions; the others have no limit."""
    rotary_base: float = 10_000.0
    """Base of the wavelengths of rotary positions."""
    norm: NormPlacement = "post"
    """Norm after the residual connection, as in the paper, before the sub-layer, or before and after it (Gemma)."""
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
        for name in ("dropout", "attention_dropout"):
            require(0 <= getattr(self, name) < 1, f"{name} must be at least 0 and below 1")
        can_have_both = self.architecture == "decoder_only" or self.norm != "both"
        require(can_have_both, 'norm = "both" is for the architecture decoder_only')
        require(0 < self.norm_epsilon < 1, "norm_epsilon must be above 0 and below 1")
        require(self.rotary_base > 1, "rotary_base must be above 1")
        rotary = self.positions == "rotary"
        require(not rotary or self.head_widths[0] % 2 == 0, "rotary positions need an even d_k")
        halves = self.positions in ("marian", "fairseq")
        require(not halves or self.d_model % 2 == 0, f"{self.positions} positions need an even d_model")
        require(rotary or self.rotary_base == 10_000.0, 'rotary_base has no effect without positions = "rotary"')
        adds = self.positions in ADDED
        require(self.neighbourhood is None or self.neighbourhood >= 1, "neighbourhood must be at least 1")
        if self.attention_variant is not None:
            name = "neighbourhood" if self.attention == "scaled" else f'attention = "{self.attention}"'
            require(groups == self.num_heads, f"{name} needs kv_heads = num_heads")
            require(adds, f'{name} needs positions = "sinusoidal" or "learned"')
            require(self.attention_dropout == 0, f"{name} needs attention_dropout = 0")
        require(
            self.embedding != "normalized" or adds,
            'embedding = "normalized" normalizes the sum with positions: use positions = "learned" or "sinusoidal"',
        )

    @property
    def head_widths(self) -> tuple[int, int]:
        width = self.d_model // self.num_heads
        return self.d_k or width, self.d_v or width

    @property
    def heads(self) -> HeadSizes:
        d_k, d_v = self.head_widths
        return HeadSizes(
            num_heads=self.num_heads, d_k=d_k, d_v=d_v, kv_heads=self.kv_heads or self.num_heads, bias=self.bias
        )

    @property
    def attention_variant(self) -> AttentionVariant | None:
        """In what attention differs from the paper's, if it does."""
        if self.attention == "scaled" and self.neighbourhood is None:
            return None
        return AttentionVariant(self.attention, self.neighbourhood)

    @property
    def packs_attention(self) -> bool:
        """Whether attention on a GPU needs no padding: for heads that are not too wide, without bias and dropout."""
        narrow = max(self.head_widths) <= MAX_PACKED_WIDTH and not self.attention_dropout
        return narrow and self.positions != "relative" and self.attention_variant is None

    @property
    def sublayer_parameters(self) -> tuple[int, int]:
        """The elements of the matrices of an attention module and of a feed-forward network."""
        heads = self.heads
        attention = self.d_model * (heads.num_heads + heads.kv_heads) * (heads.d_k + heads.d_v)
        return attention, self.d_model * self.d_ff * (3 if self.activation in ("geglu", "swiglu") else 2)

    def min_parameters(self, vocab_size: int) -> int:
        """See `ModelConfig`: the elements of the embeddings, learned positions and a separate output projection."""
        positions = self.max_positions if self.positions == "learned" else 0
        return (vocab_size * (1 if self.tie_output else 2) + positions) * self.d_model

    def sizes(self) -> dict[str, Any]:
        """See `ModelConfig`; dropout is not included."""
        d_k, d_v = self.head_widths
        return asdict(replace(self, dropout=0.0, attention_dropout=0.0, d_k=d_k, d_v=d_v, kv_heads=self.heads.kv_heads))


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(TransformerConfig):
    """The sizes of Table 3; the defaults are its base model."""

    encoder_layers: int = 6
    """N, the number of encoder layers."""
    decoder_layers: int = 6
    """N, the number of decoder layers."""
    source_vocab_size: int | None = None
    """Number of tokens of the source, if it has a vocabulary and an embedding matrix of its own; it follows from the
    vocabularies (tokenizer.separate). By default, source and target share both, as in the paper."""
    share_positions: bool = True
    """Encoder and decoder share the positional encoding, and the norm of embeddings if there is one."""
    relative_buckets: int = 32
    """Number of buckets that the distances of relative positions share (T5)."""
    relative_distance: int = 128
    """Distance from which on all are in the last bucket."""
    zero_start: bool = False
    """Start outputs with a zero vector instead of a learned one, as Marian and its converters do. With a tied output
    projection, use output_bias as well, so that the marker's logit is not fixed."""
    decoder_cell: DecoderCell = "attention"
    """What relates a target token to earlier ones: causal self-attention, or a recurrent unit (SSRU), as in the models
    of Firefox Translations."""
    decoder_tag: bool = False
    """Whether the first token of a source, the tag of the target language, is read by the decoder instead of by the
    encoder (M2M-100, NLLB, mBART-50). Outputs then start with the end marker and the tag."""
    source: Literal["text", "audio"] = "text"
    """What the encoder reads: tokens, or sound as log-mel frames (Whisper)."""
    mel_bins: int = 80
    """Frequency bands of a frame of sound."""
    max_frames: int = 3000
    """Maximum number of frames of a sound, of 10 ms each; a multiple of two."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.share_positions or self.positions in ("learned", "relative"), "share_positions must be true")
        size = self.source_vocab_size
        require(size is None or size >= 4, "source_vocab_size must be at least 4")
        require(size is None or self.source == "text", 'source_vocab_size needs source = "text"')
        shared = size is None and self.source == "text" and self.positions != "relative"
        require(not self.decoder_tag or shared, "decoder_tag needs a vocabulary that source and target share")
        distances = (self.relative_buckets, self.relative_distance)
        relative = self.positions == "relative" or distances == (32, 128)
        require(relative, 'relative_buckets and relative_distance have no effect without positions = "relative"')
        require(4 <= self.relative_buckets <= 2**16, "relative_buckets must be between 4 and 65536")
        reaches = self.relative_distance > self.relative_buckets // 2
        require(reaches, "relative_distance must be above half of relative_buckets")
        recurrent = self.decoder_cell == "ssru"
        require(not recurrent or self.positions in ADDED, "a decoder_cell of ssru needs positions that are added")
        require(1 <= self.mel_bins <= 1024, "mel_bins must be between 1 and 1024")
        require(2 <= self.max_frames <= 2**16 and self.max_frames % 2 == 0, "max_frames must be even, 2 to 65536")

    @property
    def layer_counts(self) -> Sequence[str]:
        return ("encoder_layers", "decoder_layers")

    @property
    def longest(self) -> int | None:
        """See `Model`: the number of learned positions, less one for the marker and one for a tag."""
        return self.max_positions - 1 - self.decoder_tag if self.positions == "learned" else None

    @property
    def alignment_layer(self) -> int:
        """The decoder layer that aligns best: of six the last but one (Garg et al., 2019); of two or three the last."""
        return self.decoder_layers - (2 if self.decoder_layers >= _DEEP else 1)

    def min_parameters(self, vocab_size: int) -> int:
        """See `ModelConfig`: the elements of all matrices, without biases and norms."""
        attention, feed_forward = self.sublayer_parameters
        cell = attention if self.decoder_cell == "attention" else 2 * self.d_model**2
        decoder = self.decoder_layers * (cell + attention + feed_forward)
        layers = self.encoder_layers * (attention + feed_forward) + decoder
        source = (self.source_vocab_size or 0) * self.d_model
        return super().min_parameters(vocab_size) + source + layers


@dataclass(frozen=True, kw_only=True)
class DecoderOnlyConfig(TransformerConfig):
    """The sizes of a decoder-only model, and in what those after Llama differ from it."""

    architecture: str = "decoder_only"
    """Name of the architecture in the table of models (models/registry.py)."""
    layers: int = 6
    """Number of layers."""
    qk_norm: bool = False
    """Normalize the queries and keys of every head (Qwen3, Gemma 3)."""
    window: int | None = None
    """A position attends to this many positions up to itself (Mistral); by default to all."""
    global_every: int = 0
    """With a window: every n-th layer attends to all positions (Gemma); 0: none."""
    local_rotary_base: float | None = None
    """Base of the wavelengths in layers with a window, which rotary_scaling does not change (Gemma 3); by default
    rotary_base."""
    rotary_scaling: RotaryScaling = "none"
    """How rotations are slowed for texts longer than those of the first training: all (linear), or long wavelengths
    only (llama3)."""
    rotary_factor: float = 1.0
    """By what factor."""
    rotary_low: float = 1.0
    """llama3: wavelengths that fit less often than this into the original context are slowed."""
    rotary_high: float = 4.0
    """llama3: wavelengths that fit more often than this are not."""
    rotary_original: int = 8192
    """llama3: the original context, in tokens."""
    score_cap: float | None = None
    """Bound of the scores of attention, which cap * tanh(score / cap) approaches (Gemma 2); by default none."""
    logit_cap: float | None = None
    """Bound of the logits, likewise (Gemma 2)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.positions != "relative", "relative positions are for the architecture encoder_decoder")
        require(self.attention_variant is None, "attention and neighbourhood are for the architecture encoder_decoder")
        require(self.window is None or self.window >= 1, "window must be at least 1")
        require(self.window is not None or not self.global_every, "global_every has no effect without window")
        require(self.global_every >= 0, "global_every must be at least 0")
        require(
            self.rotary_factor > 0 and self.rotary_original >= 1, "rotary_factor and rotary_original must be above 0"
        )
        require(self.rotary_low < self.rotary_high, "rotary_low must be below rotary_high")
        for name in ("score_cap", "logit_cap"):
            value = getattr(self, name)
            require(value is None or value > 0, f"{name} must be above 0")
        rotary = self.positions == "rotary" or (self.rotary_scaling == "none" and self.local_rotary_base is None)
        require(rotary, 'rotary_scaling and local_rotary_base have no effect without positions = "rotary"')

    def is_local(self, layer: int) -> bool:
        """Whether a layer attends only to a window."""
        return self.window is not None and not (self.global_every and (layer + 1) % self.global_every == 0)

    def rotary_rates(self, *, local: bool = False) -> RotaryRates:
        """The rates of rotary positions, of layers with a window or of the others."""
        if local and self.local_rotary_base is not None:
            return RotaryRates(self.head_widths[0], self.local_rotary_base)
        scaling = self.rotary_scaling, self.rotary_factor, self.rotary_low, self.rotary_high, self.rotary_original
        return RotaryRates(self.head_widths[0], self.rotary_base, *scaling)

    @property
    def packs_attention(self) -> bool:
        return super().packs_attention and self.window is None and self.score_cap is None

    @property
    def layer_counts(self) -> Sequence[str]:
        return ("layers",)

    def min_parameters(self, vocab_size: int) -> int:
        return super().min_parameters(vocab_size) + self.layers * sum(self.sublayer_parameters)

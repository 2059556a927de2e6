"""The kinds of parts that a model is built from, and the sizes of attention heads, without torch."""

from dataclasses import dataclass
from typing import Literal

Activation = Literal["relu", "gelu", "gelu_tanh", "swish", "geglu", "swiglu"]
"""max(0, x), as in the paper; x Φ(x), exact or approximated by tanh; x sigmoid(x); or, gated, gelu_tanh(x V) * (x W)
and swish(x V) * (x W)."""
EmbeddingKind = Literal["scaled", "plain", "normalized"]
NormPlacement = Literal["post", "pre", "both"]
RotaryScaling = Literal["none", "linear", "llama3"]
NormType = Literal["layer", "rms"]
DecoderCell = Literal["attention", "ssru"]
PositionKind = Literal["sinusoidal", "marian", "fairseq", "learned", "rotary", "relative"]
ADDED: tuple[PositionKind, ...] = ("sinusoidal", "marian", "fairseq", "learned")
"""Positional encodings that are added to the embeddings."""


@dataclass(frozen=True, kw_only=True)
class HeadSizes:
    """Number and widths of the heads of an attention module."""

    num_heads: int
    d_k: int
    d_v: int
    kv_heads: int
    """Heads of keys and values; each serves num_heads / kv_heads heads of queries (grouped-query attention)."""
    bias: bool = True
    """Whether the projections have biases."""


MAX_PACKED_WIDTH = 256
"""Widest heads of attention on packed streams (CUDA, half precision)."""
Score = Literal["scaled", "unscaled", "additive"]


@dataclass(frozen=True)
class AttentionVariant:
    """In what attention differs from the paper's."""

    score: Score = "scaled"
    neighbourhood: int | None = None
    """r: position t of self-attention attends only to positions from t - r // 2 to t + r // 2."""


LINEAR_MAPS = ("qkv", "q", "kv", "out", "inner", "outer")
"""The linear maps of attention and feed-forward; a model need not have all of them."""
LORA_A, LORA_B = ".lora_A", ".lora_B"
"""Suffixes of the names of the factors of a low-rank update (nn/low_rank.py), after that of the weight."""

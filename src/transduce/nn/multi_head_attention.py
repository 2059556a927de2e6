"""Multi-head attention (section 3.2.2): h attention functions in parallel, each on its own projection of the input.

Projections that read the same input are one matrix product: queries, keys and values of self-attention, keys and
values of cross-attention. `out` is W^O, the projection of the concatenated heads back to d_model.
"""

from torch import Tensor, nn

from transduce.nn.attention import attend, attention_weights
from transduce.nn.cache import KVCache
from transduce.nn.heads import split_heads
from transduce.nn.linear import projections
from transduce.nn.segments import Segments


class SelfAttention(nn.Module):
    """Every token attends to the tokens of its own segment; with `causal`, only to itself and earlier ones."""

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int, *, causal: bool) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v, self.causal = num_heads, d_k, d_v, causal
        self.qkv = projections(d_model, [num_heads * d_k, num_heads * d_k, num_heads * d_v])
        self.out = projections(num_heads * d_v, [d_model])
        self.engine = "auto"

    def forward(self, x_ND: Tensor, segments: Segments, *, bias: bool = True) -> Tensor:
        """(N, D) to (N, D); with `bias=False`, the bias of W^O is left to the caller (`layers.Residual`)."""
        q_NHK, k_NHK, v_NHK = self._project(x_ND)
        o_NHK = attend(q_NHK, k_NHK, v_NHK, segments, segments, self.causal, self.engine)
        return self.out(o_NHK.flatten(1), bias=bias)

    def step(self, x_RD: Tensor, cache: KVCache, *, bias: bool = True) -> Tensor:
        """`forward` for one new token per row, which attends to itself and to the tokens in the cache."""
        return self.out(cache.attend_self(*self._project(x_RD)).flatten(1), bias=bias)

    def weights(self, x_ND: Tensor, segments: Segments) -> Tensor:
        """The attention weights of `forward`, as (B, H, T, T)."""
        q_NHK, k_NHK, _ = self._project(x_ND)
        return attention_weights(q_NHK, k_NHK, segments, segments, self.causal)

    def _project(self, x_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q_NHK, k_NHK, v_NHK = split_heads(self.qkv(x_ND), self.num_heads, [self.d_k, self.d_k, self.d_v])
        return q_NHK, k_NHK, v_NHK


class CrossAttention(nn.Module):
    """Every token of a target segment attends to the encoder's output for the source segment of the same number."""

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v = num_heads, d_k, d_v
        self.q = projections(d_model, [num_heads * d_k])
        self.kv = projections(d_model, [num_heads * d_k, num_heads * d_v])
        self.out = projections(num_heads * d_v, [d_model])
        self.engine = "auto"

    def forward(
        self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments, *, bias: bool = True
    ) -> Tensor:
        """(M, D) tokens and (N, D) encoder output to (M, D); `bias` as in `SelfAttention.forward`."""
        k_NHK, v_NHK = self.project_memory(memory_ND)
        o_MHK = attend(self._queries(x_MD), k_NHK, v_NHK, segments, memory_segments, False, self.engine)
        return self.out(o_MHK.flatten(1), bias=bias)

    def step(self, x_RD: Tensor, cache: KVCache, *, bias: bool = True) -> Tensor:
        """`forward` for one new token per row."""
        return self.out(cache.attend_cross(self._queries(x_RD)).flatten(1), bias=bias)

    def weights(self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments) -> Tensor:
        """The attention weights of `forward`, as (B, H, T, S)."""
        k_NHK, _ = self.project_memory(memory_ND)
        return attention_weights(self._queries(x_MD), k_NHK, segments, memory_segments, False)

    def project_memory(self, memory_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output."""
        k_NHK, v_NHK = split_heads(self.kv(memory_ND), self.num_heads, [self.d_k, self.d_v])
        return k_NHK, v_NHK

    def _queries(self, x_MD: Tensor) -> Tensor:
        return self.q(x_MD).view(-1, self.num_heads, self.d_k)

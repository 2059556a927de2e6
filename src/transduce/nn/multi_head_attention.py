"""Multi-head attention (section 3.2.2).

Projections of the same input are one matrix: queries, keys and values of self-attention, keys and
values of cross-attention. `out` is W^O, the projection of the concatenated heads back to d_model.
"""

import torch
from torch import Tensor, nn

from transduce.nn.attention import attend, attention_weights, reference
from transduce.nn.cache import KVCache
from transduce.nn.kinds import HeadSizes as HeadSizes
from transduce.nn.linear import projections
from transduce.nn.positions import Rotary
from transduce.nn.segments import Segments


def split_heads(joint_ND: Tensor, *shapes: tuple[int, int]) -> tuple[Tensor, ...]:
    """The columns of a projection as parts of shape (N, heads, width), given heads and width of each part."""
    parts = joint_ND.split([heads * width for heads, width in shapes], dim=1)
    return tuple(part.view(-1, *shape) for part, shape in zip(parts, shapes, strict=True))


class SelfAttention(nn.Module):
    """Every token attends to the tokens of its own segment; with `causal`, only to itself and earlier ones.

    With `window`, it attends to that number of positions up to its own. With `norm_epsilon`, queries and keys are
    normalized. With `score_cap`, scores are bounded, which only `reference` computes.
    """

    attend = staticmethod(attend)
    split_heads = staticmethod(split_heads)

    def __init__(
        self,
        d_model: int,
        heads: HeadSizes,
        *,
        causal: bool,
        rotary: Rotary | None = None,
        dropout: float = 0.0,
        window: int | None = None,
        norm_epsilon: float | None = None,
        score_cap: float | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.causal, self.rotary, self.dropout, self.window = heads, causal, rotary, dropout, window
        self.score_cap = score_cap
        self.q_norm, self.k_norm = (
            nn.Identity() if norm_epsilon is None else nn.RMSNorm(heads.d_k, eps=norm_epsilon) for _ in range(2)
        )
        widths = [heads.num_heads * heads.d_k, heads.kv_heads * heads.d_k, heads.kv_heads * heads.d_v]
        self.qkv = projections(d_model, widths, bias=heads.bias)
        self.out = projections(heads.num_heads * heads.d_v, [d_model], bias=heads.bias)

    def forward(self, x_ND: Tensor, segments: Segments, score_bias_BHTS: Tensor | None = None) -> Tensor:
        """(N, D) to (N, D)."""
        q_NHK, k_NHK, v_NHK = self.project(x_ND, segments.position_N)
        dropout = self.dropout if self.training else 0.0
        return self.out(self._attend(q_NHK, k_NHK, v_NHK, segments, score_bias_BHTS, dropout).flatten(1))

    def prefill(self, x_ND: Tensor, segments: Segments, keys_and_values: list[tuple[Tensor, Tensor]]) -> Tensor:
        """`forward`, which appends the keys and values (N, H, K) to a list, for a cache."""
        q_NHK, k_NHK, v_NHK = self.project(x_ND, segments.position_N)
        keys_and_values.append((k_NHK, v_NHK))
        return self.out(self._attend(q_NHK, k_NHK, v_NHK, segments).flatten(1))

    def step(self, x_RD: Tensor, position_R: Tensor, cache: KVCache, score_bias_RHT: Tensor | None = None) -> Tensor:
        """`forward` for one new token per row, which attends to itself and to the tokens in the cache."""
        q_RHK, k_RHK, v_RHK = self.project(x_RD, position_R)
        return self.out(cache.attend_self(q_RHK, k_RHK, v_RHK, score_bias_RHT, self.window, self.score_cap).flatten(1))

    def weights(self, x_ND: Tensor, segments: Segments, score_bias_BHTS: Tensor | None = None) -> Tensor:
        """The attention weights of `forward`, as (B, H, T, T)."""
        q_NHK, k_NHK, _ = self.project(x_ND, segments.position_N)
        bias_BHTS = self._bias(segments, score_bias_BHTS)
        return attention_weights(q_NHK, k_NHK, segments, segments, self.causal, bias_BHTS, self.score_cap)

    def _attend(
        self,
        q_NHK: Tensor,
        k_NHK: Tensor,
        v_NHK: Tensor,
        segments: Segments,
        score_bias_BHTS: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        bias_BHTS = self._bias(segments, score_bias_BHTS)
        if self.score_cap is not None:
            return reference(
                q_NHK, k_NHK, v_NHK, segments, segments, self.causal, bias_BHTS, dropout, cap=self.score_cap
            )
        return self.attend(q_NHK, k_NHK, v_NHK, segments, segments, self.causal, bias_BHTS, dropout)

    def _bias(self, segments: Segments, score_bias_BHTS: Tensor | None = None) -> Tensor | None:
        """The bias of scores: that of a window is -inf before it."""
        if self.window is None or segments.longest <= self.window:
            return score_bias_BHTS
        position_T = torch.arange(segments.longest, device=segments.offsets_B1.device)
        outside_TS = position_T[:, None] - position_T >= self.window
        return torch.zeros_like(outside_TS, dtype=self.out.weight.dtype).masked_fill(outside_TS, -torch.inf)[None, None]

    def project(self, x_ND: Tensor, position_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of tokens at these positions."""
        q_NHK, k_NHK, v_NHK = self.divide(self.qkv(x_ND))
        q_NHK, k_NHK = self.q_norm(q_NHK), self.k_norm(k_NHK)
        if self.rotary is not None:
            q_NHK, k_NHK = self.rotary(q_NHK, position_N), self.rotary(k_NHK, position_N)
        return q_NHK, k_NHK, v_NHK

    def divide(self, joint_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of the joint projection: queries, keys and values."""
        heads = self.heads
        q_NHK, k_NHK, v_NHK = self.split_heads(
            joint_ND, (heads.num_heads, heads.d_k), (heads.kv_heads, heads.d_k), (heads.kv_heads, heads.d_v)
        )
        return q_NHK, k_NHK, v_NHK


class CrossAttention(nn.Module):
    """Every token of a target segment attends to the encoder's output for the source segment of the same number."""

    attend = staticmethod(attend)
    split_heads = staticmethod(split_heads)

    def __init__(self, d_model: int, heads: HeadSizes, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q = projections(d_model, [heads.num_heads * heads.d_k], bias=heads.bias)
        self.kv = projections(d_model, [heads.kv_heads * heads.d_k, heads.kv_heads * heads.d_v], bias=heads.bias)
        self.out = projections(heads.num_heads * heads.d_v, [d_model], bias=heads.bias)

    def forward(self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments) -> Tensor:
        """(M, D) tokens and (N, D) encoder output to (M, D)."""
        k_NHK, v_NHK = self.project_memory(memory_ND)
        q_MHK, dropout = self.queries(x_MD), self.dropout if self.training else 0.0
        o_MHK = self.attend(q_MHK, k_NHK, v_NHK, segments, memory_segments, False, dropout=dropout)
        return self.out(o_MHK.flatten(1))

    def step(self, x_RD: Tensor, cache: KVCache) -> Tensor:
        """`forward` for one new token per row."""
        return self.out(cache.attend_cross(self.queries(x_RD)).flatten(1))

    def weights(self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments) -> Tensor:
        """The attention weights of `forward`, as (B, H, T, S)."""
        k_NHK, _ = self.project_memory(memory_ND)
        return attention_weights(self.queries(x_MD), k_NHK, segments, memory_segments, False)

    def project_memory(self, memory_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output."""
        heads = self.heads
        k_NHK, v_NHK = self.split_heads(self.kv(memory_ND), (heads.kv_heads, heads.d_k), (heads.kv_heads, heads.d_v))
        return k_NHK, v_NHK

    def queries(self, x_MD: Tensor) -> Tensor:
        """The queries (M, H, K) of target tokens."""
        return self.q(x_MD).view(-1, self.heads.num_heads, self.heads.d_k)

"""Sub-layers other than the paper's: other scores (section 3.2.1), restricted self-attention (section 4), SSRU.

The functions are definitions, written out on a padded grid, and the modules compute with them: they are for
measurements and comparisons, and much slower than the paper's attention. With the defaults they are the same.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from transduce.nn.cache import KVCache, TensorKVCache
from transduce.nn.kinds import AttentionVariant, DecoderCell, HeadSizes, Score
from transduce.nn.layers import LayerConfig
from transduce.nn.linear import projections
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention
from transduce.nn.segments import Segments


def scores(q_BHTK: Tensor, k_BHSK: Tensor, score: Score = "scaled", v_HK: Tensor | None = None) -> Tensor:
    """The scores (B, H, T, S) of every query and key.

    "scaled" is q·k / sqrt(d_k), "unscaled" is q·k, and "additive" is v·tanh(q + k) with one vector v for each head: a
    feed-forward network with one hidden layer, whose first matrices are the projections of queries and keys.
    """
    if score == "additive":
        assert v_HK is not None
        return torch.einsum("bhtsk,hk->bhts", torch.tanh(q_BHTK[:, :, :, None] + k_BHSK[:, :, None]), v_HK)
    product_BHTS = q_BHTK @ k_BHSK.transpose(-1, -2)
    return product_BHTS / math.sqrt(q_BHTK.shape[-1]) if score == "scaled" else product_BHTS


def masked_softmax(scores_BTS: Tensor, mask_B1S: Tensor) -> Tensor:
    """Softmax over the keys that the mask allows; zeros if it allows none."""
    lowest = torch.finfo(scores_BTS.dtype).min
    return scores_BTS.masked_fill(~mask_B1S, lowest).softmax(dim=-1).masked_fill(~mask_B1S, 0.0)


def variant_weights(
    q_NHK: Tensor,
    k_MHK: Tensor,
    q_segments: Segments,
    k_segments: Segments,
    variant: AttentionVariant,
    v_HK: Tensor | None = None,
    *,
    causal: bool = False,
) -> Tensor:
    """Attention weights (B, H, T, S), zero outside the segments; `v_HK` is the vector of additive scores.

    With a mask or a neighbourhood, queries and keys have the same segments.
    """
    q, k = q_segments.layout, k_segments.layout
    scores_BHTS = scores(q.pad(q_NHK).transpose(1, 2), k.pad(k_MHK).transpose(1, 2), variant.score, v_HK)
    allowed_BHTS = k.real_BT[:, None, None, :] & q.real_BT[:, None, :, None]
    T, S = scores_BHTS.shape[-2:]
    distance_TS = torch.arange(S, device=q_NHK.device) - torch.arange(T, device=q_NHK.device)[:, None]
    if causal:
        allowed_BHTS = allowed_BHTS & (distance_TS <= 0)
    if variant.neighbourhood is not None:
        allowed_BHTS = allowed_BHTS & (distance_TS.abs() <= variant.neighbourhood // 2)
    return masked_softmax(scores_BHTS, allowed_BHTS)


def weighted_values(weights_BHTS: Tensor, v_MHK: Tensor, q_segments: Segments, k_segments: Segments) -> Tensor:
    """The sums (N, H, K) of values with attention weights."""
    return q_segments.layout.unpad(torch.einsum("bhts,bshk->bthk", weights_BHTS, k_segments.layout.pad(v_MHK)))


class VariantSelfAttention(SelfAttention):
    """Self-attention with other scores, or restricted to a neighbourhood."""

    def __init__(self, d_model: int, heads: HeadSizes, variant: AttentionVariant, *, causal: bool) -> None:
        super().__init__(d_model, heads, causal=causal)
        self.variant, self.v_HK = variant, _score_vector(variant, heads)

    def forward(self, x_ND: Tensor, segments: Segments, score_bias_BHTS: Tensor | None = None) -> Tensor:
        assert score_bias_BHTS is None
        q_NHK, k_NHK, v_NHK = self.project(x_ND, segments.position_N)
        weights_BHTS = self._weights(q_NHK, k_NHK, segments)
        return self.out(weighted_values(weights_BHTS, v_NHK, segments, segments).flatten(1))

    def step(self, x_RD: Tensor, position_R: Tensor, cache: KVCache, score_bias_RHT: Tensor | None = None) -> Tensor:
        assert isinstance(cache, TensorKVCache)
        assert score_bias_RHT is None
        q_RHK, k_RHK, v_RHK = self.project(x_RD, position_R)
        k_RHTK, v_RHTK, used_R11T = cache.append(k_RHK, v_RHK)
        scores_RH1T = scores(q_RHK[:, :, None], k_RHTK, self.variant.score, self.v_HK)
        allowed = torch.ones_like(scores_RH1T, dtype=torch.bool) if used_R11T is None else used_R11T
        if self.variant.neighbourhood is not None:  # the new token has the last place
            distance_T = torch.arange(cache.length - 1, -1, -1, device=x_RD.device)
            allowed = allowed & (distance_T <= self.variant.neighbourhood // 2)
        o_RHK = (masked_softmax(scores_RH1T, allowed) @ v_RHTK)[:, :, 0]
        return self.out(o_RHK.flatten(1))

    def weights(self, x_ND: Tensor, segments: Segments, score_bias_BHTS: Tensor | None = None) -> Tensor:
        q_NHK, k_NHK, _ = self.project(x_ND, segments.position_N)
        return self._weights(q_NHK, k_NHK, segments)

    def _weights(self, q_NHK: Tensor, k_NHK: Tensor, segments: Segments) -> Tensor:
        return variant_weights(q_NHK, k_NHK, segments, segments, self.variant, self.v_HK, causal=self.causal)


class VariantCrossAttention(CrossAttention):
    """Cross-attention with other scores; the neighbourhood does not restrict it."""

    def __init__(self, d_model: int, heads: HeadSizes, variant: AttentionVariant) -> None:
        super().__init__(d_model, heads)
        self.variant, self.v_HK = AttentionVariant(variant.score), _score_vector(variant, heads)

    def forward(self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments) -> Tensor:
        k_NHK, v_NHK = self.project_memory(memory_ND)
        weights_BHTS = variant_weights(self.queries(x_MD), k_NHK, segments, memory_segments, self.variant, self.v_HK)
        return self.out(weighted_values(weights_BHTS, v_NHK, segments, memory_segments).flatten(1))

    def step(self, x_RD: Tensor, cache: KVCache) -> Tensor:
        source = cast(TensorKVCache, cache).source
        assert source is not None
        q_BHWK = self.queries(x_RD).unflatten(0, (len(source.mask_B11S), -1)).transpose(1, 2)
        scores_BHWS = scores(q_BHWK, source.k_BHSK, self.variant.score, self.v_HK)
        o_BHWK = masked_softmax(scores_BHWS, source.mask_B11S) @ source.v_BHSK
        return self.out(o_BHWK.transpose(1, 2).flatten(0, 1).flatten(1))

    def weights(self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments) -> Tensor:
        k_NHK, _ = self.project_memory(memory_ND)
        return variant_weights(self.queries(x_MD), k_NHK, segments, memory_segments, self.variant, self.v_HK)


def _score_vector(variant: AttentionVariant, heads: HeadSizes) -> nn.Parameter | None:
    if variant.score != "additive":
        return None
    return nn.Parameter(torch.randn(heads.num_heads, heads.d_k) * heads.d_k**-0.5)


def restricted_attention(q_TK: Tensor, k_TK: Tensor, v_TK: Tensor, neighbourhood: int) -> Tensor:
    """Restricted self-attention of one sequence and head without the products that its mask would remove."""
    half = neighbourhood // 2
    T, K = k_TK.shape
    # Window t is the rows t - half to t + half; it overlaps with its neighbours in memory, so nothing is copied.
    k_TRK, v_TRK = (
        torch.nn.functional.pad(x_TK, (0, 0, half, half)).as_strided((T, 2 * half + 1, K), (K, K, 1))
        for x_TK in (k_TK, v_TK)
    )
    position_TR = torch.arange(T, device=q_TK.device)[:, None] + torch.arange(-half, half + 1, device=q_TK.device)
    scores_T1R = (q_TK[:, None] @ k_TRK.transpose(1, 2)) / math.sqrt(K)
    outside_T1R = ((position_TR < 0) | (position_TR >= T))[:, None]
    return (scores_T1R.masked_fill(outside_T1R, -torch.inf).softmax(dim=-1) @ v_TRK)[:, 0]


@dataclass(frozen=True, kw_only=True)
class VariantLayerConfig(LayerConfig):
    """The settings of such layers."""

    variant: AttentionVariant | None
    """In what attention differs from the paper's."""
    cell: DecoderCell
    """What relates a target token to earlier ones, in a decoder."""

    def make_self_attention(self, *, causal: bool) -> nn.Module:
        if causal and self.cell == "ssru":
            return SSRU(self.d_model)
        if self.variant is None:
            return super().make_self_attention(causal=causal)
        return VariantSelfAttention(self.d_model, self.heads, self.variant, causal=causal)

    def make_cross_attention(self) -> CrossAttention:
        if self.variant is None:
            return super().make_cross_attention()
        return VariantCrossAttention(self.d_model, self.heads, self.variant)


class SSRU(nn.Module):
    """c_t = f_t c_(t-1) + (1 - f_t) x_t W with f_t = sigmoid(x_t W_f + b_f); the output is max(0, c_t)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.input = projections(d_model, [d_model], bias=False)
        self.forget = projections(d_model, [d_model])

    def forward(self, x_ND: Tensor, segments: Segments, _: Tensor | None = None) -> Tensor:
        """(N, D) to (N, D): each token depends on itself and earlier ones of its segment."""
        layout = segments.layout
        keep_BTD, new_BTD = (layout.pad(x) for x in self._gates(x_ND))
        state_BD, states = torch.zeros_like(new_BTD[:, 0]), []
        for t in range(segments.longest):
            state_BD = keep_BTD[:, t] * state_BD + new_BTD[:, t]
            states.append(state_BD)
        return layout.unpad(torch.stack(states, dim=1)).relu()

    def step(self, x_RD: Tensor, position_R: Tensor, cache: KVCache, _: Tensor | None = None) -> Tensor:
        """`forward` for one new token per row."""
        return cache.recur(*self._gates(x_RD)).relu()

    def _gates(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """The share of the state that is kept, and what is added to it."""
        keep_ND = self.forget(x_ND).sigmoid()
        return keep_ND, (1 - keep_ND) * self.input(x_ND)

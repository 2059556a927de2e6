"""Multi-head attention (section 3.2.2): h attentions side by side, each on its own projection of the input.

Projections that read the same input are one matrix product: queries, keys and values of self-attention, keys and
values of cross-attention.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn.attention import attend, attention_weights
from transduce.nn.cache import LayerCache
from transduce.nn.projections import projections
from transduce.nn.segments import Segments


class SelfAttention(nn.Module):
    """Every token of a sentence looks at the tokens of the same sentence; with `causal`, not ahead."""

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int, *, causal: bool) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v, self.causal = num_heads, d_k, d_v, causal
        self.widths = [num_heads * d_k, num_heads * d_k, num_heads * d_v]
        self.qkv = projections(d_model, self.widths)
        self.out = projections(num_heads * d_v, [d_model])
        self.engine = "auto"

    def forward(self, x_ND: Tensor, segments: Segments) -> Tensor:
        """(N, D) to (N, D)."""
        q_NHK, k_NHK, v_NHK = self._project(x_ND)
        o_NHK = attend(q_NHK, k_NHK, v_NHK, segments, segments, self.causal, self.engine)
        return self.out(o_NHK.flatten(1))

    def step(self, x_RD: Tensor, cache: LayerCache, position: int) -> Tensor:
        """One new token for each row, which sees itself and what the cache remembers."""
        q_RHK, k_RHK, v_RHK = self._project(x_RD)
        k_RHTK, v_RHTK = cache.append(k_RHK, v_RHK, position)
        o_RH1K = F.scaled_dot_product_attention(q_RHK[:, :, None], k_RHTK, v_RHTK)
        return self.out(o_RH1K.flatten(1))

    def weights(self, x_ND: Tensor, segments: Segments) -> Tensor:
        """What `forward` looks at, as (B, H, T, T)."""
        q_NHK, k_NHK, _ = self._project(x_ND)
        return attention_weights(q_NHK, k_NHK, segments, segments, self.causal)

    def _project(self, x_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x_ND).split(self.widths, dim=-1)
        H = self.num_heads
        return q.view(-1, H, self.d_k), k.view(-1, H, self.d_k), v.view(-1, H, self.d_v)


class CrossAttention(nn.Module):
    """Every token of a target sentence looks at the encoded tokens of its source sentence."""

    def __init__(self, d_model: int, num_heads: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.num_heads, self.d_k, self.d_v = num_heads, d_k, d_v
        self.widths = [num_heads * d_k, num_heads * d_v]
        self.q = projections(d_model, [num_heads * d_k])
        self.kv = projections(d_model, self.widths)
        self.out = projections(num_heads * d_v, [d_model])
        self.engine = "auto"

    def forward(self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments) -> Tensor:
        """(M, D) tokens and (N, D) memory to (M, D)."""
        k_NHK, v_NHK = self.project_memory(memory_ND)
        o_MHK = attend(self._queries(x_MD), k_NHK, v_NHK, segments, memory_segments, False, self.engine)
        return self.out(o_MHK.flatten(1))

    def step(self, x_RD: Tensor, cache: LayerCache, mask_B11S: Tensor) -> Tensor:
        """One new token for each row; the rows of a sentence share its keys and values."""
        B, H, _, K = cache.cross_k_BHSK.shape
        q_BHWK = self._queries(x_RD).view(B, -1, H, K).transpose(1, 2)
        o_BHWK = F.scaled_dot_product_attention(q_BHWK, cache.cross_k_BHSK, cache.cross_v_BHSK, attn_mask=mask_B11S)
        return self.out(o_BHWK.transpose(1, 2).reshape(len(x_RD), -1))

    def weights(self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments) -> Tensor:
        """What `forward` looks at, as (B, H, T, S)."""
        k_NHK, _ = self.project_memory(memory_ND)
        return attention_weights(self._queries(x_MD), k_NHK, segments, memory_segments, False)

    def project_memory(self, memory_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoded source."""
        k, v = self.kv(memory_ND).split(self.widths, dim=-1)
        return k.view(-1, self.num_heads, self.d_k), v.view(-1, self.num_heads, self.d_v)

    def _queries(self, x_MD: Tensor) -> Tensor:
        return self.q(x_MD).view(-1, self.num_heads, self.d_k)

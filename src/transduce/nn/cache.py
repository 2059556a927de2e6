"""KV caches: the keys and values of a decoder layer, kept between steps so that a step computes only one token."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.nn.attention import soft_cap
from transduce.nn.segments import Segments

_BLOCK = 32


class KVCache(Protocol):
    """The keys and values of one decoder layer, and attention over them for one new token in each row."""

    def attend_self(
        self,
        q_RHK: Tensor,
        k_RHK: Tensor,
        v_RHK: Tensor,
        score_bias_RHT: Tensor | None = None,
        window: int | None = None,
        cap: float | None = None,
    ) -> Tensor:
        """Store the new keys and values; each token attends to itself and to earlier ones of its row (R, H, K).

        With a window, only to the last `window` tokens, itself included; with a cap, scores are bounded by it. Engine
        gpu has neither.
        """

    def attend_cross(self, q_RHK: Tensor) -> Tensor:
        """Each new token attends to the source of its row (R, H, K)."""

    def recur(self, keep_RD: Tensor, new_RD: Tensor) -> Tensor:
        """The next state of a recurrent unit (R, D): a share of the last one, which is zero at first, plus `new_RD`."""


@dataclass
class SourceKV:
    """Keys and values of the source, once per sentence: the rows of a beam share them."""

    k_BHSK: Tensor
    v_BHSK: Tensor
    mask_B11S: Tensor
    """True at positions that hold a source token."""

    def attend(self, q_RHK: Tensor) -> Tensor:
        """Each row attends to the source of its sentence."""
        _, H, K = q_RHK.shape
        q_BHWK = q_RHK.view(len(self.mask_B11S), -1, H, K).transpose(1, 2)
        o_BHWK = _attend(q_BHWK, self.k_BHSK, self.v_BHSK, self.mask_B11S)
        return o_BHWK.transpose(1, 2).flatten(0, 1)


@dataclass
class TensorKVCache:
    """A KV cache in plain tensors, which are copied when search reorders its rows."""

    self_k_RHTK: Tensor
    """Keys of the tokens so far; the capacity grows in blocks."""
    self_v_RHTK: Tensor
    length: int = 0
    """Number of tokens so far."""
    source: SourceKV | None = None
    """None if the model has no cross-attention."""
    state_RD: Tensor | None = None
    """State of a recurrent unit in place of self-attention; None before the first token."""
    skipped_R: Tensor | None = None
    """Number of unused places at the start of each row, if the rows began with prompts of different lengths."""

    @classmethod
    def empty(cls, source: SourceKV) -> "TensorKVCache":
        """A cache before the first token, with one row per sentence."""
        B, H, _, K = source.k_BHSK.shape
        return cls(
            source.k_BHSK.new_empty(B, H, 0, K),
            source.v_BHSK.new_empty(B, H, 0, source.v_BHSK.shape[-1]),
            source=source,
        )

    @classmethod
    def of_prompts(cls, k_NHK: Tensor, v_NHK: Tensor, prompts: Segments) -> "TensorKVCache":
        """A cache of prompts. They are aligned at their ends: the next token of every row has the same place."""
        layout, longest = prompts.layout, prompts.longest
        if layout.full:
            return cls(layout.pad(k_NHK).transpose(1, 2), layout.pad(v_NHK).transpose(1, 2), longest)
        skipped_R = longest - prompts.lengths_B.long()
        place_RT = (torch.arange(longest, device=k_NHK.device) - skipped_R[:, None]) % longest
        k_RHTK, v_RHTK = (
            layout.pad(x).gather(1, place_RT[:, :, None, None].expand(-1, -1, *x.shape[1:])).transpose(1, 2)
            for x in (k_NHK, v_NHK)
        )
        return cls(k_RHTK, v_RHTK, longest, skipped_R=skipped_R)

    def attend_self(
        self,
        q_RHK: Tensor,
        k_RHK: Tensor,
        v_RHK: Tensor,
        score_bias_RHT: Tensor | None = None,
        window: int | None = None,
        cap: float | None = None,
    ) -> Tensor:
        """See `KVCache`."""
        k_RHTK, v_RHTK, mask = self.append(k_RHK, v_RHK)
        if window is not None:  # all rows end at the same place
            k_RHTK, v_RHTK = k_RHTK[:, :, -window:], v_RHTK[:, :, -window:]
            mask = None if mask is None else mask[..., -window:]
        if score_bias_RHT is not None:
            assert mask is None
            mask = score_bias_RHT[:, :, None]
        if cap is not None:
            return _attend_capped(q_RHK, k_RHTK, v_RHTK, mask, cap)
        return _attend(q_RHK[:, :, None], k_RHTK, v_RHTK, mask)[:, :, 0]

    def append(self, k_RHK: Tensor, v_RHK: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Store new keys and values; returns all (R, H, T, K), and a mask (R, 1, 1, T) if some are not in use."""
        if self.length == self.self_k_RHTK.shape[2]:
            self.self_k_RHTK, self.self_v_RHTK = _grow(self.self_k_RHTK), _grow(self.self_v_RHTK)
        self.self_k_RHTK[:, :, self.length] = k_RHK
        self.self_v_RHTK[:, :, self.length] = v_RHK
        self.length += 1
        mask = None
        if self.skipped_R is not None:
            place_T = torch.arange(self.length, device=k_RHK.device)
            mask = (place_T >= self.skipped_R[:, None])[:, None, None]
        return self.self_k_RHTK[:, :, : self.length], self.self_v_RHTK[:, :, : self.length], mask

    def attend_cross(self, q_RHK: Tensor) -> Tensor:
        """See `KVCache`."""
        assert self.source is not None
        return self.source.attend(q_RHK)

    def recur(self, keep_RD: Tensor, new_RD: Tensor) -> Tensor:
        """See `KVCache`."""
        self.state_RD = new_RD if self.state_RD is None else keep_RD * self.state_RD + new_RD
        return self.state_RD

    def reorder(self, index_BW: Tensor) -> None:
        """Give sentence b the old rows index_BW[b]; sentences may be removed, in order."""
        old_rows, row_R = len(self.self_k_RHTK), index_BW.flatten()
        self.self_k_RHTK = self.self_k_RHTK.index_select(0, row_R)
        self.self_v_RHTK = self.self_v_RHTK.index_select(0, row_R)
        if self.state_RD is not None:
            self.state_RD = self.state_RD.index_select(0, row_R)
        if self.skipped_R is not None:
            self.skipped_R = self.skipped_R.index_select(0, row_R)
        if self.source is not None and len(index_BW) < (sentences := len(self.source.mask_B11S)):
            remaining_B = index_BW[:, 0] // (old_rows // sentences)
            fields = (self.source.k_BHSK, self.source.v_BHSK, self.source.mask_B11S)
            self.source = SourceKV(*(x.index_select(0, remaining_B) for x in fields))


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=k.shape[1] < q.shape[1])


def _attend_capped(q_RHK: Tensor, k_RGTK: Tensor, v_RGTK: Tensor, mask: Tensor | None, cap: float) -> Tensor:
    """Attention with bounded scores; G heads of keys and values serve groups of the H heads of queries."""
    groups = q_RHK.shape[1] // k_RGTK.shape[1]
    k_RHTK, v_RHTK = k_RGTK.repeat_interleave(groups, dim=1), v_RGTK.repeat_interleave(groups, dim=1)
    score_RHT = soft_cap(torch.einsum("rhk,rhtk->rht", q_RHK, k_RHTK) / math.sqrt(q_RHK.shape[-1]), cap)
    if mask is not None:
        score_RHT = score_RHT.masked_fill(~mask[:, :, 0], -torch.inf)
    return torch.einsum("rht,rhtk->rhk", score_RHT.softmax(-1), v_RHTK)


def _grow(x_RHTK: Tensor) -> Tensor:
    R, H, _, K = x_RHTK.shape
    return torch.cat([x_RHTK, x_RHTK.new_empty(R, H, _BLOCK, K)], dim=2)

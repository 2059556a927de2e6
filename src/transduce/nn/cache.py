"""KV caches: the keys and values of a decoder layer, kept between steps so that a step computes only one token."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

_BLOCK = 32


class KVCache(Protocol):
    """The keys and values of one decoder layer, and attention over them for one new token in each row."""

    def attend_self(self, q_RHK: Tensor, k_RHK: Tensor, v_RHK: Tensor) -> Tensor:
        """Store the new keys and values; each token attends to itself and to earlier ones of its row (R, H, K)."""

    def attend_cross(self, q_RHK: Tensor) -> Tensor:
        """Each new token attends to the source of its row (R, H, K)."""


@dataclass
class TensorKVCache:
    """A KV cache in plain tensors, which are copied when search reorders its rows."""

    self_k_RHTK: Tensor
    """Keys of the tokens generated so far; the capacity grows in blocks."""
    self_v_RHTK: Tensor
    cross_k_BHSK: Tensor
    """Keys of the source, once per sentence: the rows of a beam share them."""
    cross_v_BHSK: Tensor
    mask_B11S: Tensor
    """True at positions that hold a source token."""
    length: int = 0
    """Number of tokens generated so far."""

    @classmethod
    def empty(cls, cross_k_BHSK: Tensor, cross_v_BHSK: Tensor, mask_B11S: Tensor) -> "TensorKVCache":
        """A cache before the first token, with one row per sentence."""
        B, H, _, K = cross_k_BHSK.shape
        empty_k = cross_k_BHSK.new_empty(B, H, 0, K)
        empty_v = cross_v_BHSK.new_empty(B, H, 0, cross_v_BHSK.shape[-1])
        return cls(empty_k, empty_v, cross_k_BHSK, cross_v_BHSK, mask_B11S)

    def attend_self(self, q_RHK: Tensor, k_RHK: Tensor, v_RHK: Tensor) -> Tensor:
        """See `KVCache`."""
        if self.length == self.self_k_RHTK.shape[2]:
            self.self_k_RHTK, self.self_v_RHTK = _grow(self.self_k_RHTK), _grow(self.self_v_RHTK)
        self.self_k_RHTK[:, :, self.length] = k_RHK
        self.self_v_RHTK[:, :, self.length] = v_RHK
        self.length += 1
        keys, values = self.self_k_RHTK[:, :, : self.length], self.self_v_RHTK[:, :, : self.length]
        return F.scaled_dot_product_attention(q_RHK[:, :, None], keys, values)[:, :, 0]

    def attend_cross(self, q_RHK: Tensor) -> Tensor:
        """See `KVCache`; the rows of a sentence share its keys and values."""
        B, H, _, K = self.cross_k_BHSK.shape
        q_BHWK = q_RHK.view(B, -1, H, K).transpose(1, 2)
        o_BHWK = F.scaled_dot_product_attention(q_BHWK, self.cross_k_BHSK, self.cross_v_BHSK, attn_mask=self.mask_B11S)
        return o_BHWK.transpose(1, 2).flatten(0, 1)

    def reorder(self, index_BW: Tensor) -> None:
        """Give sentence b the old rows index_BW[b]; sentences may be removed, in order."""
        sentences, row_R = len(self.mask_B11S), index_BW.flatten()
        old_rows = len(self.self_k_RHTK) // sentences
        self.self_k_RHTK = self.self_k_RHTK.index_select(0, row_R)
        self.self_v_RHTK = self.self_v_RHTK.index_select(0, row_R)
        if len(index_BW) < sentences:
            remaining_B = index_BW[:, 0] // old_rows
            self.cross_k_BHSK = self.cross_k_BHSK.index_select(0, remaining_B)
            self.cross_v_BHSK = self.cross_v_BHSK.index_select(0, remaining_B)
            self.mask_B11S = self.mask_B11S.index_select(0, remaining_B)


def _grow(x_RHTK: Tensor) -> Tensor:
    R, H, _, K = x_RHTK.shape
    return torch.cat([x_RHTK, x_RHTK.new_empty(R, H, _BLOCK, K)], dim=2)

"""What a decoder layer remembers between steps, so that a step costs one token and not the whole prefix."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

_BLOCK = 32


class Cache(Protocol):
    """The keys and values one decoder layer has seen, and attention over them for one new token in each row."""

    def attend_self(self, q_RHK: Tensor, k_RHK: Tensor, v_RHK: Tensor) -> Tensor:
        """Remember the new tokens; each looks at itself and at what its row said before (R, H, K)."""

    def attend_cross(self, q_RHK: Tensor) -> Tensor:
        """Each new token looks at the source of its row (R, H, K)."""


@dataclass
class LayerCache:
    """Keys and values in plain tensors, copied whenever search reorders its rows."""

    self_k_RHTK: Tensor
    """Of the tokens said so far; room for more than are there."""
    self_v_RHTK: Tensor
    cross_k_BHSK: Tensor
    """Of the source, once per sentence: the rows of a beam share them."""
    cross_v_BHSK: Tensor
    mask_B11S: Tensor
    """True where the source has a token."""
    length: int = 0
    """Tokens said so far."""

    @classmethod
    def empty(cls, cross_k_BHSK: Tensor, cross_v_BHSK: Tensor, mask_B11S: Tensor) -> "LayerCache":
        """A cache before the first token, one row a sentence."""
        B, H, _, K = cross_k_BHSK.shape
        empty_k = cross_k_BHSK.new_empty(B, H, 0, K)
        empty_v = cross_v_BHSK.new_empty(B, H, 0, cross_v_BHSK.shape[-1])
        return cls(empty_k, empty_v, cross_k_BHSK, cross_v_BHSK, mask_B11S)

    def attend_self(self, q_RHK: Tensor, k_RHK: Tensor, v_RHK: Tensor) -> Tensor:
        """As in `Cache`."""
        if self.length == self.self_k_RHTK.shape[2]:
            self.self_k_RHTK, self.self_v_RHTK = _grow(self.self_k_RHTK), _grow(self.self_v_RHTK)
        self.self_k_RHTK[:, :, self.length] = k_RHK
        self.self_v_RHTK[:, :, self.length] = v_RHK
        self.length += 1
        seen_k, seen_v = self.self_k_RHTK[:, :, : self.length], self.self_v_RHTK[:, :, : self.length]
        return F.scaled_dot_product_attention(q_RHK[:, :, None], seen_k, seen_v)[:, :, 0]

    def attend_cross(self, q_RHK: Tensor) -> Tensor:
        """As in `Cache`; the rows of a sentence share its keys and values."""
        B, H, _, K = self.cross_k_BHSK.shape
        q_BHWK = q_RHK.view(B, -1, H, K).transpose(1, 2)
        o_BHWK = F.scaled_dot_product_attention(q_BHWK, self.cross_k_BHSK, self.cross_v_BHSK, attn_mask=self.mask_B11S)
        return o_BHWK.transpose(1, 2).flatten(0, 1)

    def reorder(self, index_BW: Tensor) -> None:
        """Give sentence b the old rows index_BW[b]; sentences may leave but keep their order."""
        sentences, row_R = len(self.mask_B11S), index_BW.flatten()
        old_rows = len(self.self_k_RHTK) // sentences
        self.self_k_RHTK = self.self_k_RHTK.index_select(0, row_R)
        self.self_v_RHTK = self.self_v_RHTK.index_select(0, row_R)
        if len(index_BW) < sentences:
            left_B = index_BW[:, 0] // old_rows
            self.cross_k_BHSK = self.cross_k_BHSK.index_select(0, left_B)
            self.cross_v_BHSK = self.cross_v_BHSK.index_select(0, left_B)
            self.mask_B11S = self.mask_B11S.index_select(0, left_B)


def _grow(x_RHTK: Tensor) -> Tensor:
    R, H, _, K = x_RHTK.shape
    return torch.cat([x_RHTK, x_RHTK.new_empty(R, H, _BLOCK, K)], dim=2)

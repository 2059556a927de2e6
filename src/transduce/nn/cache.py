"""What a decoder layer remembers between steps, so that a step costs one token and not the whole prefix."""

from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK = 32


@dataclass
class LayerCache:
    """Keys and values of one decoder layer."""

    self_k_RHTK: Tensor
    """Of the tokens said so far; room for more than are there."""
    self_v_RHTK: Tensor
    cross_k_BHSK: Tensor
    """Of the source, once per sentence: the rows of a beam share them."""
    cross_v_BHSK: Tensor

    @classmethod
    def empty(cls, cross_k_BHSK: Tensor, cross_v_BHSK: Tensor) -> "LayerCache":
        """A cache before the first token, one row a sentence."""
        B, H, _, K = cross_k_BHSK.shape
        empty_k = cross_k_BHSK.new_empty(B, H, 0, K)
        empty_v = cross_v_BHSK.new_empty(B, H, 0, cross_v_BHSK.shape[-1])
        return cls(empty_k, empty_v, cross_k_BHSK, cross_v_BHSK)

    def append(self, k_RHK: Tensor, v_RHK: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """Remember the token at `position`; the keys and values of all tokens up to it."""
        if position == self.self_k_RHTK.shape[2]:
            self.self_k_RHTK = _grow(self.self_k_RHTK)
            self.self_v_RHTK = _grow(self.self_v_RHTK)
        self.self_k_RHTK[:, :, position] = k_RHK
        self.self_v_RHTK[:, :, position] = v_RHK
        return self.self_k_RHTK[:, :, : position + 1], self.self_v_RHTK[:, :, : position + 1]

    def reorder(self, row_R: Tensor, sentence_B: Tensor | None) -> None:
        """Keep these rows; and these sentences, where some have left."""
        self.self_k_RHTK = self.self_k_RHTK.index_select(0, row_R)
        self.self_v_RHTK = self.self_v_RHTK.index_select(0, row_R)
        if sentence_B is not None:
            self.cross_k_BHSK = self.cross_k_BHSK.index_select(0, sentence_B)
            self.cross_v_BHSK = self.cross_v_BHSK.index_select(0, sentence_B)


def _grow(x_RHTK: Tensor) -> Tensor:
    R, H, _, K = x_RHTK.shape
    return torch.cat([x_RHTK, x_RHTK.new_empty(R, H, _BLOCK, K)], dim=2)

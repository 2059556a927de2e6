"""The KV cache of a layer in slots, for decoding on a GPU."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.fast.gpu.attention_kernels import attend_cross, attend_self, store_rows

_ALIGNMENT = 8
"""Rows are a multiple of this many elements: Triton loads up to 16 bytes at once, and assumes that rows allow it."""


@dataclass(frozen=True)
class SlotCache:
    """A `KVCache` that is never copied: search reorders rows in a table that all layers share."""

    self_kv: Tensor
    """(rows x positions + 1, width of the keys and values of all heads, or of the state of a recurrent unit)."""
    cross_kv: Tensor
    """(slots x source capacity + 1, width of the keys and values); in both, filler is written to the last row."""
    ancestor_RP: Tensor
    """The row of the slot that stores position p of hypothesis r."""
    position_R: Tensor
    """Number of tokens generated in each row."""
    source_length_S: Tensor
    source_capacity: int
    """Maximum number of source tokens in a slot."""
    d_v: int

    @classmethod
    def empty(
        cls, ancestor_RP: Tensor, position_R: Tensor, source_length_S: Tensor, source_capacity: int, heads: int,
        d_k: int, d_v: int, state_width: int | None, dtype: torch.dtype,
    ) -> "SlotCache":  # fmt: skip
        """A cache for all positions of all rows, and for sources of up to `source_capacity` tokens.

        `state_width` is that of the recurrent unit in place of self-attention, if the layer has one.
        """
        width = heads * (d_k + d_v)
        shapes = (
            (ancestor_RP.numel() + 1, width if state_width is None else state_width),
            (len(source_length_S) * source_capacity + 1, width),
        )
        self_kv, cross_kv = (
            torch.zeros(n, -(-columns // _ALIGNMENT) * _ALIGNMENT, dtype=dtype, device=position_R.device)
            for n, columns in shapes
        )  # a NaN in a row not yet written would not become zero when it is multiplied by a weight of zero
        return cls(self_kv, cross_kv, ancestor_RP, position_R, source_length_S, source_capacity, d_v)

    def attend_self(
        self,
        q_RHK: Tensor,
        k_RHK: Tensor,
        v_RHK: Tensor,
        score_bias_RHT: Tensor | None = None,
        window: int | None = None,
        cap: float | None = None,
    ) -> Tensor:
        """See `KVCache`; the engine refuses models that bound scores, add a bias to them, or attend to a window."""
        assert score_bias_RHT is None
        assert window is None
        assert cap is None
        beam = len(self.position_R) // len(self.source_length_S)
        return attend_self(q_RHK, k_RHK, v_RHK, self.self_kv, self.ancestor_RP, self.position_R, beam)

    def attend_cross(self, q_RHK: Tensor) -> Tensor:
        """See `KVCache`."""
        return attend_cross(q_RHK, self.d_v, self.cross_kv, self.source_length_S, self.source_capacity)

    def recur(self, keep_RD: Tensor, new_RD: Tensor) -> Tensor:
        """See `KVCache`; the states of all positions are kept, so that search can continue any hypothesis."""
        (R, P), D = self.ancestor_RP.shape, new_RD.shape[1]
        row_R = torch.arange(R, device=new_RD.device)
        first_row_R = row_R - row_R % (R // len(self.source_length_S))
        last_R = (self.position_R - 1).clamp_(min=0).long()
        last_row_R = first_row_R + self.ancestor_RP.gather(1, last_R[:, None])[:, 0]
        last_RD = self.self_kv[last_row_R * P + last_R, :D]
        state_RD = torch.where(self.position_R[:, None] > 0, keep_RD * last_RD + new_RD, new_RD)
        self.self_kv[:, :D].index_copy_(0, row_R * P + self.position_R, state_RD)
        return state_RD

    def store_prompt(self, cache_row_N: Tensor, kv_ND: Tensor) -> None:
        """Store the keys and values of the tokens of prompts in these rows."""
        store_rows(kv_ND, cache_row_N, self.self_kv)

    def store_source(self, cache_row_N: Tensor, kv_ND: Tensor) -> None:
        """Store the keys and values of source tokens in these rows."""
        store_rows(kv_ND, cache_row_N, self.cross_kv)

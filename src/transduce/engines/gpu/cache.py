"""A layer's keys and values in slots that sentences enter and leave, for decoding on a GPU."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.engines.gpu.attention_kernels import attend_cross, attend_self


@dataclass(frozen=True)
class SlotCache:
    """A `KVCache` whose lines never move: reordering rows changes a table that all layers share."""

    self_kv: Tensor
    """(rows x places, keys and values side by side)."""
    cross_kv: Tensor
    """(slots x source places + 1, likewise); the last line takes what belongs nowhere."""
    ancestor_RP: Tensor
    """In which row of its slot the token lies that row r has at place p."""
    position_R: Tensor
    """Tokens each row has said."""
    source_length_S: Tensor
    source_room: int
    """Source places of each slot."""
    d_v: int

    @classmethod
    def empty(
        cls, ancestor_RP: Tensor, position_R: Tensor, source_length_S: Tensor, source_room: int, heads: int,
        d_k: int, d_v: int, dtype: torch.dtype,
    ) -> "SlotCache":  # fmt: skip
        """Room for every place of every row and for sources of up to `source_room` tokens."""
        lines = (ancestor_RP.numel(), len(source_length_S) * source_room + 1)
        self_kv, cross_kv = (
            torch.zeros(n, heads * (d_k + d_v), dtype=dtype, device=position_R.device) for n in lines
        )  # zeros, as a line not yet written must not hold a NaN that a mask multiplies by 0
        return cls(self_kv, cross_kv, ancestor_RP, position_R, source_length_S, source_room, d_v)

    def attend_self(self, q_RHK: Tensor, k_RHK: Tensor, v_RHK: Tensor) -> Tensor:
        """See `KVCache`."""
        beam = len(self.position_R) // len(self.source_length_S)
        return attend_self(q_RHK, k_RHK, v_RHK, self.self_kv, self.ancestor_RP, self.position_R, beam)

    def attend_cross(self, q_RHK: Tensor) -> Tensor:
        """See `KVCache`."""
        return attend_cross(q_RHK, self.d_v, self.cross_kv, self.source_length_S, self.source_room)

    def remember_source(self, line_N: Tensor, kv_ND: Tensor) -> None:
        """Put the projected source tokens into their lines."""
        self.cross_kv.index_copy_(0, line_N, kv_ND)

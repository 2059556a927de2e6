"""Where the sentences of a packed batch begin and end."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

TILE = 64
"""Tokens of a side that one program of the attention kernel holds at once."""


@dataclass(frozen=True, eq=False)
class Segments:
    """Sentence b owns tokens offsets[b]:offsets[b+1] of a flat run; every token belongs to one."""

    offsets_B1: Tensor
    """Whole numbers (int32), rising from 0 to the number of tokens."""
    longest: int
    """No segment has more tokens than this."""
    tokens: int
    """All segments together."""
    groups_G1: Tensor | None = None
    """Group g is the segments groups[g]:groups[g+1], which share a tile; the same tensor on both sides of a batch."""

    @classmethod
    def of_lengths(cls, lengths: Sequence[int], device: torch.device | str = "cpu") -> "Segments":
        """Segments of these lengths, one after the other."""
        offsets = torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0)
        return cls(offsets.to(torch.int32).to(device), max(lengths, default=0), sum(lengths))

    def __len__(self) -> int:
        return self.offsets_B1.shape[0] - 1

    @cached_property
    def lengths_B(self) -> Tensor:
        """Tokens of each segment."""
        return self.offsets_B1.diff()

    @cached_property
    def layout(self) -> "PaddedLayout":
        """Where each token would stand in a padded batch."""
        return PaddedLayout(self)

    @cached_property
    def segment_N(self) -> Tensor:
        """The number of each token's segment."""
        token_N = torch.arange(self.tokens, device=self.offsets_B1.device, dtype=torch.int32)
        return torch.searchsorted(self.offsets_B1, token_N, right=True, out_int32=True) - 1

    @cached_property
    def position_N(self) -> Tensor:
        """The place of each token within its own sentence, from 0."""
        token_N = torch.arange(self.tokens, device=self.offsets_B1.device, dtype=torch.int32)
        return token_N - self.offsets_B1[self.segment_N]

    @cached_property
    def singles(self) -> Tensor:
        """Groups of one segment each."""
        return torch.arange(len(self) + 1, device=self.offsets_B1.device, dtype=torch.int32)


def most_groups(tokens: int) -> int:
    """No batch with so many tokens on each side has more groups: two neighbours always overfill a tile."""
    return 2 * (2 * tokens // (TILE + 1)) + 1


def group_segments(src_offsets: Sequence[int], tgt_offsets: Sequence[int]) -> list[int]:
    """Where groups begin and end: as many neighbouring segments as fit one tile on both sides, at least one."""
    groups, segments = [0], len(src_offsets) - 1
    while groups[-1] < segments:
        first = groups[-1]
        fitting = min(
            bisect_right(offsets, offsets[first] + TILE, lo=first) - 1 for offsets in (src_offsets, tgt_offsets)
        )
        groups.append(max(fitting, first + 1))
    return groups


def pack_tokens(sentences: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> tuple[Tensor, Segments]:
    """Sentences of token ids laid end to end, and where each stands."""
    tokens_N = torch.tensor([token for sentence in sentences for token in sentence], device=device)
    return tokens_N, Segments.of_lengths([len(sentence) for sentence in sentences], device)


class PaddedLayout:
    """The two ways between a flat run of N tokens and a (sentence, place) grid with room for the longest."""

    def __init__(self, segments: Segments) -> None:
        place_1T = torch.arange(segments.longest, device=segments.offsets_B1.device)[None]
        self.shape = (len(segments), segments.longest)
        self.real_BT = place_1T < segments.lengths_B[:, None]
        """True where a token stands."""
        self.cell_of_token_N = self.real_BT.flatten().nonzero().flatten()
        self.full = len(self.cell_of_token_N) == self.real_BT.numel()
        """No cell is empty: packed and padded are the same run of numbers."""

    def pad(self, x_NHK: Tensor) -> Tensor:
        """(N, H, K) to (B, T, H, K), with zeros where no token stands."""
        if not self.full:
            x_NHK = _Pad.apply(x_NHK, self.cell_of_token_N, self.real_BT.numel())  # type: ignore[no-untyped-call]
        return x_NHK.view(*self.shape, *x_NHK.shape[1:])

    def unpad(self, x_BTHK: Tensor) -> Tensor:
        """(B, T, H, K) back to (N, H, K)."""
        x = x_BTHK.flatten(0, 1)
        return x if self.full else _Unpad.apply(x, self.cell_of_token_N)  # type: ignore[no-untyped-call]


# Each of these two is the other's gradient. Autograd's own answer for a gather is a scattered addition, which is
# many times slower on a CPU; as every token has one cell, nothing has to be added.


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cell_of_token, cells):  # type: ignore[no-untyped-def]
        ctx.cell_of_token = cell_of_token
        return x.new_zeros(cells, *x.shape[1:]).index_copy_(0, cell_of_token, x)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return grad.index_select(0, ctx.cell_of_token), None, None


class _Unpad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cell_of_token):  # type: ignore[no-untyped-def]
        ctx.cell_of_token, ctx.cells = cell_of_token, len(x)
        return x.index_select(0, cell_of_token)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return grad.new_zeros(ctx.cells, *grad.shape[1:]).index_copy_(0, ctx.cell_of_token, grad), None

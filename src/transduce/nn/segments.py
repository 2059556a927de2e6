"""Segments: the boundaries of the sequences in a packed batch."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

TILE = 64
"""Tokens of each stream that one program of the attention kernel loads at once."""


@dataclass(frozen=True, eq=False)
class Segments:
    """Segment b owns tokens offsets[b]:offsets[b+1] of a packed stream; every token belongs to one segment."""

    offsets_B1: Tensor
    """int32, non-decreasing from 0 to the number of tokens."""
    longest: int
    """Upper bound on the length of a segment."""
    tokens: int
    """Total number of tokens."""
    groups_G1: Tensor | None = None
    """Group g is the segments groups[g]:groups[g+1], which share a tile; the same in all streams of a batch."""

    @classmethod
    def of_lengths(cls, lengths: Sequence[int], device: torch.device | str = "cpu") -> "Segments":
        """Consecutive segments of these lengths."""
        offsets = torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0)
        return cls(offsets.to(torch.int32).to(device), max(lengths, default=0), sum(lengths))

    def __len__(self) -> int:
        return self.offsets_B1.shape[0] - 1

    @cached_property
    def lengths_B(self) -> Tensor:
        """The length of each segment."""
        return self.offsets_B1.diff()

    @cached_property
    def layout(self) -> "PaddedLayout":
        """The cell of each token in a padded (B, T) grid."""
        return PaddedLayout(self)

    @cached_property
    def segment_N(self) -> Tensor:
        """The index of the segment that each token belongs to."""
        token_N = torch.arange(self.tokens, device=self.offsets_B1.device, dtype=torch.int32)
        return torch.searchsorted(self.offsets_B1, token_N, right=True, out_int32=True) - 1

    @cached_property
    def position_N(self) -> Tensor:
        """The position of each token in its segment, from 0."""
        token_N = torch.arange(self.tokens, device=self.offsets_B1.device, dtype=torch.int32)
        return token_N - self.offsets_B1[self.segment_N]

    @cached_property
    def singles(self) -> Tensor:
        """The group boundaries if every group is one segment."""
        return torch.arange(len(self) + 1, device=self.offsets_B1.device, dtype=torch.int32)


def max_groups(tokens: int) -> int:
    """Upper bound on the number of groups: any two adjacent groups exceed one tile."""
    return 2 * (2 * tokens // (TILE + 1)) + 1


def group_segments(offsets_of_streams: Sequence[Sequence[int]]) -> list[int]:
    """Group boundaries: each group has as many adjacent segments as fit one tile in every stream, at least one."""
    groups, segments = [0], len(offsets_of_streams[0]) - 1
    while groups[-1] < segments:
        first = groups[-1]
        fitting = min(bisect_right(offsets, offsets[first] + TILE, lo=first) - 1 for offsets in offsets_of_streams)
        groups.append(max(fitting, first + 1))
    return groups


def pack_tokens(sequences: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> tuple[Tensor, Segments]:
    """Pack sequences of token ids into one stream; returns the tokens and their segments."""
    tokens_N = torch.tensor([token for sequence in sequences for token in sequence], dtype=torch.int64, device=device)
    return tokens_N, Segments.of_lengths([len(sequence) for sequence in sequences], device)


class PaddedLayout:
    """Conversion between a packed stream of N tokens and a padded (segment, position) grid.

    Indices are computed from the offsets, without a synchronisation, so that a CUDA graph can record it.
    """

    def __init__(self, segments: Segments) -> None:
        position_1T = torch.arange(segments.longest, device=segments.offsets_B1.device)[None]
        self.shape = (len(segments), segments.longest)
        self.real_BT = position_1T < segments.lengths_B[:, None]
        """True at cells that hold a token."""
        self.cell_of_token_N = segments.segment_N.long() * segments.longest + segments.position_N
        self.full = segments.tokens == self.real_BT.numel()
        """Whether no cell is empty: packed and padded are then the same memory."""

    def pad(self, x_NHK: Tensor) -> Tensor:
        """(N, H, K) to (B, T, H, K), with zeros in empty cells."""
        if not self.full:
            x_NHK = _Pad.apply(x_NHK, self.cell_of_token_N, self.real_BT.numel())  # type: ignore[no-untyped-call]
        return x_NHK.view(*self.shape, *x_NHK.shape[1:])

    def unpad(self, x_BTHK: Tensor) -> Tensor:
        """(B, T, H, K) back to (N, H, K)."""
        x = x_BTHK.flatten(0, 1)
        return x if self.full else _Unpad.apply(x, self.cell_of_token_N)  # type: ignore[no-untyped-call]


# Each of these two is the other's gradient. Autograd's gradient of a gather is a scattered addition, which is many
# times slower on a CPU; as every token has its own cell, nothing has to be added.


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

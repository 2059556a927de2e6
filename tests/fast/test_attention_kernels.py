"""The Triton kernel of attention against its readable form, as `test_kernels.py` compares the others."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from kernel_tensors import DEVICE, close, draw, leaves
from torch import Tensor

from transduce.fast.adjacent_heads import empty_adjacent, split_adjacent_heads
from transduce.nn.attention import reference
from transduce.nn.segments import TILE, Segments, group_segments, max_groups

pytest.importorskip("triton")

HOSTILE = {
    "length 1": ([1, 1, 1], [1, 1, 1]),
    "all equal": ([TILE // 2] * 4, [TILE // 2] * 4),
    "a full tile": ([TILE, TILE], [TILE, TILE]),
    "very skewed": ([1, 200, 1, 3, 2], [70, 1, 1, 1, 130]),
    "empty ones": ([1, 5, 0, 33, 3, 70, 0, 90], [40, 1, 3, 0, 65, 32, 0, 0]),
    "longer than a tile": ([TILE + 1, 3], [TILE + 1, 3]),
    "mixed": ([1, 5, 30, 33, 0, 70, 3, 3, 64, 65, 129, 2], [1, 5, 30, 33, 0, 70, 3, 3, 64, 65, 129, 2]),
}


def segments_of(q_lengths: list[int], k_lengths: list[int], grouped: bool) -> tuple[Segments, Segments]:
    """Both sides, cut into groups as a loader does (with unused groups behind), or not."""
    sides = [Segments.of_lengths(lengths, DEVICE) for lengths in (q_lengths, k_lengths)]
    if not grouped:
        return sides[0], sides[1]
    bounds = group_segments([side.offsets_B1.tolist() for side in sides])
    groups = torch.tensor([*bounds, bounds[-1], bounds[-1]], dtype=torch.int32, device=DEVICE)
    q_side, k_side = (Segments(side.offsets_B1, side.longest, side.tokens, groups) for side in sides)
    return q_side, k_side


# The interpreter takes seconds for "mixed" with two heads: other lengths go with two heads, the longest with one.
@pytest.mark.parametrize("grouped", [True, False], ids=["grouped", "one by one"])
@pytest.mark.parametrize(
    ("name", "H", "d_k", "d_v"),
    [*((name, 2, 16, 16) for name in HOSTILE if name != "mixed"), ("empty ones", 1, 24, 40), ("mixed", 1, 24, 40)],
)
def test_cross_attention(name: str, H: int, d_k: int, d_v: int, grouped: bool) -> None:
    q_segments, k_segments = segments_of(*HOSTILE[name], grouped)
    inputs = draw(q_segments.tokens, H * d_k), draw(k_segments.tokens, H * (d_k + d_v))
    probe = draw(q_segments.tokens, H, d_v)

    def run(attention: Callable[..., Tensor]) -> list[Tensor]:
        x_q, x_kv = leaves(*inputs)
        k, v = split_adjacent_heads(x_kv, (H, d_k), (H, d_v))
        o = attention(*split_adjacent_heads(x_q, (H, d_k)), k, v, q_segments, k_segments, False)
        return [o, *torch.autograd.grad(o, (x_q, x_kv), probe)]

    for found, expected in zip(run(kernel_attention), run(reference_attention), strict=True):
        close(found, expected)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both ways"])
@pytest.mark.parametrize(
    ("name", "H", "G", "d_k", "d_v"),
    [
        *((name, 2, 2, 16, 16) for name in ("length 1", "all equal", "a full tile", "longer than a tile")),
        *((name, 2, 2, 16, 64) for name in ("all equal", "longer than a tile")),
        *((name, 4, 2, 16, 24) for name in ("all equal", "longer than a tile")),
        ("empty ones", 3, 1, 16, 16),
        ("a full tile", 1, 1, 128, 128),
        ("mixed", 1, 1, 128, 128),
    ],
)
def test_self_attention(name: str, H: int, G: int, d_k: int, d_v: int, causal: bool) -> None:
    segments, _ = segments_of(HOSTILE[name][0], HOSTILE[name][0], grouped=True)
    qkv, probe = draw(segments.tokens, H * d_k + G * (d_k + d_v)), draw(segments.tokens, H, d_v)

    def run(attention: Callable[..., Tensor]) -> list[Tensor]:
        (x,) = leaves(qkv)
        o = attention(*split_adjacent_heads(x, (H, d_k), (G, d_k), (G, d_v)), segments, segments, causal)
        return [o, *torch.autograd.grad(o, x, probe)]

    for found, expected in zip(run(kernel_attention), run(reference_attention), strict=True):
        close(found, expected)


def kernel_attention(*arguments: object) -> Tensor:
    from transduce.fast.kernels.segment_attention import SegmentAttention

    return SegmentAttention.apply(*arguments)  # type: ignore[no-untyped-call]


def reference_attention(*arguments: object) -> Tensor:
    return reference(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
def test_groups_fill_tiles_and_never_share_a_long_segment(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    lengths = [torch.randint(0, 2 * TILE if seed % 2 else 20, (200,), generator=random).tolist() for _ in range(2)]
    offsets = [[0, *torch.tensor(side).cumsum(0).tolist()] for side in lengths]
    bounds = group_segments(offsets)
    assert bounds[0] == 0
    assert bounds[-1] == 200
    for first, last in pairwise(bounds):
        assert last > first
        widest = max(side[last] - side[first] for side in offsets)
        assert widest <= TILE or last == first + 1
    assert len(bounds) - 1 <= max_groups(max(side[-1] for side in offsets))


def test_gradients_written_side_by_side_are_joined_without_a_copy() -> None:
    (joint,) = leaves(draw(5, 2 * (3 + 3 + 4)))
    parts = split_adjacent_heads(joint, (2, 3), (2, 3), (2, 4))
    room = empty_adjacent(*parts)
    for number, gradient in enumerate(room):
        gradient.fill_(number)
    (together,) = torch.autograd.grad(parts, joint, room)
    assert together.data_ptr() == room[0].data_ptr()
    (copied,) = torch.autograd.grad(
        split_adjacent_heads(joint, (2, 3), (2, 3), (2, 4)), joint, [gradient.clone() for gradient in room]
    )
    torch.testing.assert_close(copied, together)

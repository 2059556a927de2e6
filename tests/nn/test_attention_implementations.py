"""Attention against softmax(QK^T / sqrt(d_k)) V, written as loops over sentences, heads and queries."""

import math
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from transduce.fast.kernels.packed_attention import attend_packed
from transduce.nn.attention import attend, attention_weights, reference
from transduce.nn.segments import Segments

Attention = Callable[..., Tensor]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="packed attention needs CUDA")
EACH = pytest.mark.parametrize("attention", [reference, attend, pytest.param(attend_packed, marks=needs_cuda)])
H = 2


def random_lengths(seed: int, count: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randint(1, 20) for _ in range(count)]


SELF_LENGTHS = {
    "random": random_lengths(1, 7),
    "other random": random_lengths(2, 4),
    "all equal": [6, 6, 6],
    "all of length 1": [1, 1, 1, 1],
    "one token": [1],
    "one sentence": [20],
    "very skewed": [1, 1, 20, 1, 2, 1],
    "with an empty sentence": [3, 0, 5, 0],
}
CROSS_LENGTHS = {
    "random": (random_lengths(3, 6), random_lengths(4, 6)),
    "all equal": ([5, 5, 5], [7, 7, 7]),
    "same lengths": ([4, 9, 2], [4, 9, 2]),
    "very skewed": ([20, 1, 1, 3], [1, 20, 1, 2]),
    "one key each": ([3, 1, 4], [1, 1, 1]),
    "an empty key segment": ([3, 4, 2], [5, 0, 6]),
    "empty key segments beside equal ones": ([3, 3, 3], [0, 4, 4]),
    "an empty query segment": ([3, 0, 2], [5, 4, 6]),
    "both empty": ([3, 0, 0, 2], [5, 0, 4, 0]),
}


def plain_attention(
    q_NHK: Tensor, k_MHK: Tensor, v_MHK: Tensor, q_lengths: list[int], k_lengths: list[int], causal: bool
) -> Tensor:
    """The definition (section 3.2.1), one query at a time; zeros where there is nothing to look at."""
    outputs = []
    q_start = k_start = 0
    for q_length, k_length in zip(q_lengths, k_lengths, strict=True):
        for place in range(q_length):
            seen = min(place + 1, k_length) if causal else k_length
            heads = []
            for head in range(q_NHK.shape[1]):
                if seen == 0:
                    heads.append(torch.zeros(v_MHK.shape[2]))
                    continue
                scores_S = torch.stack(
                    [
                        (q_NHK[q_start + place, head] * k_MHK[k_start + other, head]).sum() / math.sqrt(q_NHK.shape[2])
                        for other in range(seen)
                    ]
                )
                exponentials_S = (scores_S - scores_S.max().detach()).exp()
                weights_S = exponentials_S / exponentials_S.sum()
                heads.append((weights_S[:, None] * v_MHK[k_start : k_start + seen, head]).sum(dim=0))
            outputs.append(torch.stack(heads))
        q_start, k_start = q_start + q_length, k_start + k_length
    return torch.stack(outputs)


def check(
    attention: Attention, q_lengths: list[int], k_lengths: list[int], causal: bool, d_k: int, d_v: int, slack: int = 0
) -> None:
    """Its output and its gradients of q, k and v against the loops, with `longest` too large by `slack`."""
    device, dtype, tolerance = (
        ("cuda", torch.bfloat16, 3e-2) if attention is attend_packed else ("cpu", torch.float32, 1e-5)
    )
    generator = torch.Generator().manual_seed(0)
    shapes = [(sum(q_lengths), H, d_k), (sum(k_lengths), H, d_k), (sum(k_lengths), H, d_v)]
    # The loops compute in float32 what the implementation is given, which may be less precise.
    inputs = [torch.randn(shape, generator=generator).to(dtype).float().requires_grad_() for shape in shapes]
    probe_NHK = torch.randn(sum(q_lengths), H, d_v, generator=generator).to(dtype).float()
    expected_NHK = plain_attention(*inputs, q_lengths, k_lengths, causal)
    expected_grads = torch.autograd.grad(expected_NHK, inputs, probe_NHK, materialize_grads=True)

    given = [x.detach().to(device, dtype).requires_grad_() for x in inputs]
    q_segments, k_segments = (
        Segments(Segments.of_lengths(lengths, device).offsets_B1, max(lengths) + slack, sum(lengths))
        for lengths in (q_lengths, k_lengths)
    )
    found_NHK = attention(*given, q_segments, k_segments, causal)
    grads = torch.autograd.grad(found_NHK, given, probe_NHK.to(device, dtype))

    assert found_NHK.shape == expected_NHK.shape
    torch.testing.assert_close(found_NHK.float().cpu(), expected_NHK, rtol=tolerance, atol=tolerance)
    for name, grad, expected_grad in zip("qkv", grads, expected_grads, strict=True):
        torch.testing.assert_close(
            grad.float().cpu(),
            expected_grad,
            rtol=tolerance,
            atol=tolerance,
            msg=lambda m, n=name: f"gradient of {n}: {m}",
        )


@pytest.mark.parametrize("lengths", SELF_LENGTHS.values(), ids=SELF_LENGTHS)
@EACH
def test_self_attention_sees_all_of_the_same_sentence(attention: Attention, lengths: list[int]) -> None:
    check(attention, lengths, lengths, causal=False, d_k=16, d_v=16)


@pytest.mark.parametrize("lengths", SELF_LENGTHS.values(), ids=SELF_LENGTHS)
@EACH
def test_causal_attention_sees_the_same_sentence_up_to_its_own_place(attention: Attention, lengths: list[int]) -> None:
    check(attention, lengths, lengths, causal=True, d_k=16, d_v=16)


@pytest.mark.parametrize(("q_lengths", "k_lengths"), CROSS_LENGTHS.values(), ids=CROSS_LENGTHS)
@EACH
def test_cross_attention_sees_all_of_the_other_side(
    attention: Attention, q_lengths: list[int], k_lengths: list[int]
) -> None:
    check(attention, q_lengths, k_lengths, causal=False, d_k=16, d_v=16)


@pytest.mark.parametrize(
    ("d_k", "d_v"), [(16, 16), (32, 32), (64, 64), (128, 128), (16, 64), (32, 64), (64, 32), (128, 16)]
)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@EACH
def test_heads_may_have_any_width_and_values_another(attention: Attention, causal: bool, d_k: int, d_v: int) -> None:
    check(attention, [4, 1, 7], [4, 1, 7], causal, d_k, d_v)
    if not causal:
        check(attention, [4, 1, 7], [2, 6, 3], causal, d_k, d_v)


@pytest.mark.parametrize("lengths", [[5, 2, 7], [6, 6]], ids=["unequal", "equal"])
@EACH
def test_longest_may_be_more_than_any_segment_has(attention: Attention, lengths: list[int]) -> None:
    check(attention, lengths, lengths, causal=True, d_k=16, d_v=16, slack=3)
    check(attention, lengths, lengths[::-1], causal=False, d_k=16, d_v=16, slack=3)


@EACH
def test_a_query_whose_segment_holds_no_key_gets_zeros(attention: Attention) -> None:
    device, dtype = ("cuda", torch.bfloat16) if attention is attend_packed else ("cpu", torch.float32)
    generator = torch.Generator().manual_seed(0)
    q_NHK, k_MHK = torch.randn(7, H, 16, generator=generator), torch.randn(4, H, 16, generator=generator)
    q_segments, k_segments = (Segments.of_lengths(lengths, device) for lengths in ([3, 4], [0, 4]))
    q_NHK, k_MHK = q_NHK.to(device, dtype), k_MHK.to(device, dtype)
    o_NHK = attention(q_NHK, k_MHK, k_MHK, q_segments, k_segments, False)
    assert torch.equal(o_NHK[:3].cpu(), torch.zeros(3, H, 16, dtype=dtype))
    assert (o_NHK[3:] != 0).any()


@EACH
def test_large_scores_do_not_overflow(attention: Attention) -> None:
    device, dtype = ("cuda", torch.bfloat16) if attention is attend_packed else ("cpu", torch.float32)
    generator = torch.Generator().manual_seed(0)
    segments = Segments.of_lengths([5, 3], device)
    q, k, v = (torch.randn(8, H, 16, generator=generator).to(device, dtype) for _ in range(3))
    o_NHK = attention(q * 200, k * 200, v, segments, segments, True)
    assert torch.isfinite(o_NHK).all()
    expected_NHK = plain_attention(
        *((x * scale).float().cpu() for x, scale in ((q, 200), (k, 200), (v, 1))), [5, 3], [5, 3], causal=True
    )
    torch.testing.assert_close(o_NHK.float().cpu(), expected_NHK, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_attention_weights_are_a_distribution_over_what_a_query_sees_and_zero_elsewhere(causal: bool) -> None:
    lengths = [4, 1, 6]
    generator = torch.Generator().manual_seed(0)
    q_NHK, k_NHK = (torch.randn(11, H, 16, generator=generator) for _ in range(2))
    segments = Segments.of_lengths(lengths)
    weights_BHTS = attention_weights(q_NHK, k_NHK, segments, segments, causal)
    assert weights_BHTS.shape == (3, H, 6, 6)
    start = 0
    for sentence, length in enumerate(lengths):
        for t in range(6):
            seen = 0 if t >= length else t + 1 if causal else length
            for head in range(H):
                scores = [float(q_NHK[start + t, head] @ k_NHK[start + s, head]) / 4 for s in range(seen)]
                total = sum(map(math.exp, scores))
                expected = [math.exp(score) / total for score in scores] + [0.0] * (6 - seen)
                assert weights_BHTS[sentence, head, t].tolist() == pytest.approx(expected, abs=1e-5)
        start += length


@pytest.mark.parametrize(
    ("attention", "device"),
    [(reference, "cpu"), (attend, "cpu"), pytest.param(attend_packed, "cuda", marks=needs_cuda)],
)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_dropout_zeroes_attention_weights_and_scales_the_others(
    attention: Attention, device: str, causal: bool
) -> None:
    torch.manual_seed(0)
    lengths, p = [40, 25], 0.3
    segments, dtype = Segments.of_lengths(lengths, device), torch.float32 if device == "cpu" else torch.bfloat16
    q_NHK, k_NHK = (torch.randn(sum(lengths), H, 16, device=device, dtype=dtype) for _ in range(2))
    one_hot_NS = torch.eye(max(lengths), device=device, dtype=dtype)[segments.position_N]
    v_NHS = one_hot_NS[:, None].expand(-1, H, -1).contiguous()  # so that the output is the row of weights
    weights_NHS = attention(q_NHK, k_NHK, v_NHS, segments, segments, causal)
    dropped_NHS = attention(q_NHK, k_NHK, v_NHS, segments, segments, causal, dropout=p)
    kept = dropped_NHS != 0
    torch.testing.assert_close(dropped_NHS[kept], weights_NHS[kept] / (1 - p), rtol=2e-2, atol=1e-6)
    share = kept.sum() / (weights_NHS != 0).sum()
    assert float(share) == pytest.approx(1 - p, abs=0.03)

"""The Triton kernels against the `reference` engine, on the CPU through Triton's interpreter."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import sys
import torch
from transduce.nn.attention import attend
from transduce.nn.kernels.segment_attention import segment_attention
from transduce.nn.segments import Segments

torch.manual_seed(1)
H, d_k, d_v = (int(word) for word in sys.argv[1:4])
mixed = [1, 5, 30, 33, 0, 70]
for q_lengths, k_lengths, causal in (
    (mixed, mixed, True),
    (mixed, mixed, False),
    ([32, 32], [32, 32], True),
    ([1, 1, 1], [1, 1, 1], True),
    ([1, 5, 0, 33, 3, 70], [40, 1, 3, 0, 65, 32], False),
):
    q_segments, k_segments = Segments.of_lengths(q_lengths), Segments.of_lengths(k_lengths)
    # Queries, keys and values are columns of wider matrices, as in the model.
    wide_q, wide_kv = torch.randn(sum(q_lengths), H * d_k + 8), torch.randn(sum(k_lengths), H * (d_k + d_v))
    grad = torch.randn(sum(q_lengths), H, d_v)
    outcomes = []
    for kernel in (False, True):
        x_q, x_kv = wide_q.clone().requires_grad_(), wide_kv.clone().requires_grad_()
        q = x_q[:, : H * d_k].view(-1, H, d_k)
        k, v = (x.view(len(x), H, -1) for x in x_kv.split([H * d_k, H * d_v], dim=1))
        if kernel:
            o, _ = segment_attention(q, k, v, q_segments.offsets_B1, k_segments.offsets_B1, causal)
        else:
            o = attend(q, k, v, q_segments, k_segments, causal, "reference")
        o.backward(grad)
        outcomes.append((o, x_q.grad, x_kv.grad))
    for expected, found in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
print("agreed")
"""


@pytest.mark.parametrize(("heads", "d_k", "d_v"), [(2, 16, 16), (2, 64, 64), (1, 24, 40), (2, 16, 64), (1, 128, 128)])
def test_attention_over_short_segments_agrees_with_the_reference(heads: int, d_k: int, d_v: int) -> None:
    command = [sys.executable, "-c", PROGRAM, str(heads), str(d_k), str(d_v)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == "agreed\n", done.stderr

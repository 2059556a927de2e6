"""The length penalty is implemented in four languages; all give the same numbers."""

import ctypes
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from transduce.fast import kernels
from transduce.fast.native.library import load_library
from transduce.search.decoder import length_penalty

if kernels.HAS_TRITON:
    import triton
    import triton.language as tl

    from transduce.fast.gpu.beam_kernels import _penalty

    @triton.jit
    def penalties(length_N, alpha_N, penalty_N, N, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        n = tl.arange(0, BLOCK)
        length = tl.load(length_N + n, mask=n < N, other=1.0)
        alpha = tl.load(alpha_N + n, mask=n < N, other=0.0)
        tl.store(penalty_N + n, _penalty(length, alpha), mask=n < N)


VECTORS: list[tuple[int, float, float]] = json.loads(
    (Path(__file__).parents[1] / "data/length_penalty.json").read_text(encoding="utf-8")
)
"""Length, alpha and ((5 + length) / 6)^alpha in double precision."""
LENGTHS, ALPHAS, EXPECTED = (list(column) for column in zip(*VECTORS, strict=True))
FLOAT32 = 2e-6
"""Relative tolerance: a power of 10 multiplies the rounding error of its base by 10."""


def test_python() -> None:
    assert [length_penalty(length, alpha) for length, alpha, _ in VECTORS] == pytest.approx(EXPECTED, rel=1e-12)
    of_tensors = [length_penalty(torch.tensor(length), alpha).item() for length, alpha, _ in VECTORS]
    assert of_tensors == pytest.approx(EXPECTED, rel=FLOAT32)


def test_c() -> None:
    library = load_library()
    if library is None:
        pytest.skip("no C compiler")
    library.length_penalty.restype = ctypes.c_float
    found = [library.length_penalty(ctypes.c_float(length), ctypes.c_float(alpha)) for length, alpha, _ in VECTORS]
    assert found == pytest.approx(EXPECTED, rel=FLOAT32)


@pytest.mark.skipif(not kernels.HAS_TRITON, reason="no Triton")
def test_triton() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    length_N, alpha_N = (torch.tensor(column, dtype=torch.float32, device=device) for column in (LENGTHS, ALPHAS))
    penalty_N = torch.empty_like(length_N)
    N = len(VECTORS)
    penalties[(1,)](length_N, alpha_N, penalty_N, N, BLOCK=triton.next_power_of_2(N))
    assert penalty_N.tolist() == pytest.approx(EXPECTED, rel=10 * FLOAT32)  # it is exp(x) with x up to 51


def test_javascript() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    source = Path(__file__).parents[2] / "web/src/search.js"
    (score_of,) = re.findall(r"^const scoreOf = .*;$", source.read_text(encoding="utf-8"), re.MULTILINE)
    cases = json.dumps([[{"logProb": 1, "depth": length}, alpha] for length, alpha, _ in VECTORS])
    script = f"{score_of} console.log(JSON.stringify({cases}.map(([node, alpha]) => 1 / scoreOf(node, alpha))))"
    printed = subprocess.run([node, "-e", script], check=True, capture_output=True, text=True, timeout=60).stdout
    assert json.loads(printed) == pytest.approx(EXPECTED, rel=1e-12)

"""Training in 8 bits: what is rounded, the products of what was rounded, and runs, against their definitions.

Products are compared with those of the rounded numbers.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import random_sentences, small_language_model
from kernel_tensors import DEVICE, draw, leaves
from torch import Tensor
from torch.nn import functional as F

from transduce import train
from transduce.data.batch import Batch
from transduce.nn.feed_forward import activate
from transduce.nn.linear import Linear
from transduce.nn.loss import smoothed_cross_entropy

pytest.importorskip("triton")

STEP = {torch.float8_e4m3fn: 1 / 8, torch.float8_e5m2: 1 / 4}
"""The distance of adjacent numbers, relative to the smaller one."""
WORSE = 4 if DEVICE == "cpu" else 1
"""Triton's interpreter does not carry when it rounds up to a power of two, so that a few numbers are halved."""


def half(*shape: int, seed: int) -> Tensor:
    return draw(*shape, seed=seed).bfloat16()


def near(found: Tensor, expected: Tensor, tolerance: float = 0.01) -> None:
    """Equal but for the rounding of bfloat16."""
    error = (found.double() - expected.double()).norm() / expected.double().norm()
    assert error < tolerance, error


@pytest.mark.parametrize("kind", ["none", "relu", "gelu", "gelu_tanh", "swish"])
@pytest.mark.parametrize(("N", "D"), [(37, 160), (300, 80), (1, 16)])
@pytest.mark.parametrize("gradient", [False, True])
def test_rounding(N: int, D: int, kind: str, gradient: bool) -> None:
    from transduce.fast.kernels.float8 import Float8Scales, _rounded

    scales = Float8Scales(1, torch.device(DEVICE))
    dtype = torch.float8_e5m2 if gradient else torch.float8_e4m3fn
    largest = torch.finfo(dtype).max
    site, pre, inverse = scales.sites(0).gradient, half(N, D, seed=9) if gradient else None, 1.0
    for step, magnitude in enumerate((1.0, 1e3, 1e-3)):
        x = half(N, D, seed=step) * magnitude
        exact = x.float()
        if kind != "none":
            inputs = (x if pre is None else pre).float().requires_grad_()
            outputs = activate(inputs * 1, kind)
            exact = outputs.detach() if pre is None else torch.autograd.grad(outputs, inputs, exact)[0]
        rounded = _rounded(x, site, dtype, kind=kind, pre_ND=pre, sums=True)
        assert rounded.inverse.item() == inverse
        near(rounded.sums_D if N > 1 else exact.sum(0), exact.sum(0), 0.02)
        wide = rounded.rows_ND.float() * inverse
        inside = exact.clamp(-largest * inverse, largest * inverse)
        # Triton's interpreter truncates the smallest numbers, and does not carry.
        smallest = torch.finfo(dtype).smallest_normal * inverse * (2 if DEVICE == "cpu" else 1)
        is_right = (wide - inside).abs() <= STEP[dtype] / 2 * inside.abs().clamp(min=smallest) * 1.001
        carries = (inside / inverse).abs().frexp().mantissa >= 1 - STEP[dtype] / 4
        assert (is_right | carries if DEVICE == "cpu" else is_right).all()
        M = rounded.columns_DM.shape[1]
        assert M % 16 == 0
        assert torch.equal(rounded.columns_DM.float(), F.pad(rounded.rows_ND.float().t(), (0, M - N)))
        found = site.current.item()
        assert found == pytest.approx(exact.abs().max().item(), rel=1e-5)
        scales.begin()
        fits = largest / found if found else 1.0
        inverse = 2.0 ** (1 - torch.tensor(fits).log2().floor().item()) if found else 1.0


def test_a_step_that_is_repeated_has_the_scales_of_the_step_before() -> None:
    from transduce.fast.kernels.float8 import Float8Scales, _rounded

    scales = Float8Scales(1, torch.device(DEVICE))
    site = scales.sites(0).vectors
    _rounded(half(4, 16, seed=1), site)
    first = scales.largest.tolist()
    scales.begin()
    _rounded(half(4, 16, seed=1) * 100, site)
    scales.repeat()
    assert scales.largest.tolist() == first
    begun = Float8Scales(1, torch.device(DEVICE))
    begun.begin()
    _rounded(half(4, 16, seed=1), begun.sites(0).vectors)
    begun.repeat()  # there was no step before
    assert begun.largest.tolist() == first


@pytest.mark.parametrize("bias", [False, True])
def test_linear(bias: bool) -> None:
    from transduce.fast.kernels.float8 import Float8Linear, Float8Scales, _rounded

    sites = Float8Scales(1, torch.device(DEVICE)).sites(0)
    x, weight, dy = half(40, 128, seed=1), half(160, 128, seed=2) * 0.1, half(40, 160, seed=3) * 0.01
    offset = half(160, seed=4) if bias else None
    inputs = leaves(x, weight, *([offset] if bias else []))
    y = Float8Linear.apply(inputs[0], inputs[1], inputs[2] if bias else None, sites)  # type: ignore[no-untyped-call]
    gradients = torch.autograd.grad(y, inputs, dy)

    def values(matrix: Tensor, site: object, dtype: torch.dtype = torch.float8_e4m3fn) -> Tensor:
        rounded = _rounded(matrix, site, dtype)  # type: ignore[arg-type]
        return rounded.rows_ND.double() * rounded.inverse

    x8, weight8, dy8 = (
        values(x, sites.vectors), values(weight, sites.weight), values(dy, sites.gradient, torch.float8_e5m2)
    )  # fmt: skip
    near(y, F.linear(x8, weight8, offset.double() if offset is not None else None))
    near(gradients[0], dy8 @ weight8)
    near(gradients[1], dy8.t() @ x8)
    if bias:
        near(gradients[2], dy.double().sum(0))


@pytest.mark.parametrize("kind", ["relu", "gelu_tanh"])
def test_feed_forward_is_two_linear_layers(kind: str) -> None:
    from transduce.fast.kernels.float8 import Float8FeedForward, Float8Linear, Float8Scales

    x, inner, outer = half(40, 128, seed=1), half(160, 128, seed=2) * 0.1, half(128, 160, seed=3) * 0.1
    inputs, separate = leaves(x, inner, half(160, seed=4), outer), leaves(x, inner, half(160, seed=4), outer)
    probe, scales, others = (
        half(40, 128, seed=5),
        Float8Scales(2, torch.device(DEVICE)),
        Float8Scales(2, torch.device(DEVICE)),
    )
    y = Float8FeedForward.apply(*inputs, kind, (scales.sites(0), scales.sites(1)))  # type: ignore[no-untyped-call]
    hidden = Float8Linear.apply(*separate[:3], others.sites(0))  # type: ignore[no-untyped-call]
    expected = Float8Linear.apply(activate(hidden * 1, kind), separate[3], None, others.sites(1))  # type: ignore[no-untyped-call]
    near(y, expected, 0.03)  # here, the activation is rounded once
    for found, wanted in zip(
        torch.autograd.grad(y, inputs, probe), torch.autograd.grad(expected, separate, probe), strict=True
    ):
        near(found, wanted, 0.1)


def test_loss() -> None:
    from transduce.fast.kernels import cross_entropy
    from transduce.fast.kernels.float8 import Float8Scales

    V, D = 960, 768
    hidden, weight = half(40, D, seed=1), half(V, D, seed=2) * 0.1
    labels = torch.arange(40, device=DEVICE) * 7 % V
    inputs, plain = leaves(hidden, weight), leaves(hidden.float(), weight.float())
    sites = Float8Scales(1, torch.device(DEVICE)).sites(0)
    loss, nll = cross_entropy.smoothed_cross_entropy(inputs[0], labels, inputs[1], 0.1, float8=sites)
    expected, expected_nll = smoothed_cross_entropy(plain[0], labels, plain[1], 0.1)
    near(loss, expected, 0.05)
    near(nll, expected_nll, 0.05)
    assert sites.gradient.current > 0
    for found, wanted in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, plain), strict=True):
        near(found, wanted, 0.3)


@pytest.mark.parametrize(
    "settings",
    [
        {"activation": "relu", "positions": "learned"},
        {"activation": "swiglu", "positions": "rotary", "norm_type": "rms", "bias": False},
        {"activation": "gelu_tanh", "positions": "learned", "norm": "both"},
    ],
    ids=["relu", "swiglu", "two norms"],
)
def test_a_model_is_close_to_one_without_8_bits(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from transduce.fast.kernels import float8
    from transduce.fast.kernels.fuse import fuse, use_float8

    monkeypatch.setattr(float8, "_NARROWEST", 8)
    sizes = {"layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 2, "dropout": 0.0}
    model = small_language_model(vocab_size=64, **{"norm": "pre", **sizes, **settings}).to(DEVICE).train()
    if DEVICE == "cuda":
        model.bfloat16()
    batch = Batch.of(torch.device(DEVICE), text=random_sentences([7, 1, 20], 60, 1))
    labels = torch.arange(28, device=DEVICE) % 40 + 5

    def run() -> list[Tensor]:
        loss, _ = model.cross_entropy(model(batch), labels, model.output_weight_VD, 0.1)
        return [loss, *torch.autograd.grad(loss, [w for _, w in sorted(model.named_parameters())])]

    expected = run()
    fuse(model)
    scales = use_float8(model)
    products = sum(isinstance(module, Linear) for module in model.modules())
    run()
    scales.begin()
    found = run()
    assert (scales.largest > 0).sum() == 3 * (products + 1)  # every layer and the output
    near(found[0], expected[0], 0.05 * WORSE)
    error = sum((x.double() - y.double()).square().sum() for x, y in zip(found, expected, strict=True))
    assert error < 0.1 * WORSE * sum(x.double().square().sum() for x in expected)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_a_run_is_close_to_bfloat16_and_continues_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    lines = [f"a{i % 7} b{i % 5} c{i % 11}\tc{i % 11} b{i % 5} a{i % 7}" for i in range(3000)]
    (tmp_path / "text.tsv").write_text("\n".join(lines) + "\n")
    sizes = {"model.d_model": 1024, "model.d_ff": 2048, "model.encoder_layers": 1, "model.decoder_layers": 1}
    steps = {"train.steps": 60, "train.warmup": 30, "train.learning_rate": 5e-4, "train.batch_tokens": 1024}
    counts = {"train.save_every": 20, "train.log_every": 20, "train.keep": 5, "train.average": 1}

    def losses(name: str, precision: str, **more: int) -> list[float]:
        settings = {**sizes, **steps, **counts, "tokenizer.vocab_size": 450, "train.precision": precision, **more}
        sets = [f"{key}={value}" for key, value in settings.items()]
        train(tmp_path / name, train=tmp_path / "text.tsv", preset="tiny", sets=sets)
        records = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        return [record["loss"] for record in records if record["kind"] == "train"]

    expected, found = losses("bf16", "bfloat16"), losses("fp8", "fp8")
    assert found != expected
    assert found == pytest.approx(expected, rel=0.05)
    for step in (40, 60):
        for path in (tmp_path / f"fp8/checkpoints/step-{step}").iterdir():
            path.unlink()
        (tmp_path / f"fp8/checkpoints/step-{step}").rmdir()
    assert losses("fp8", "fp8") == found

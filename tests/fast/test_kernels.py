"""The Triton kernels against the readable forms of the same sums, on the CPU through Triton's interpreter.

`conftest.py` switches the interpreter on where there is no GPU. Each test computes in float32, where both must agree to
rounding; what bfloat16 adds is measured by `benchmarks/train_gpu.py`.
"""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import random_sentences, small_language_model, small_model
from kernel_tensors import DEVICE, close, draw, leaves
from torch import Tensor
from torch.nn import functional as F

from transduce.data.batch import Batch
from transduce.nn.feed_forward import activate
from transduce.nn.positions import Rotary
from transduce.nn.rotary_rates import RotaryRates
from transduce.tokenizers.tokenizer import PAD
from transduce.training.adam import Adam

pytest.importorskip("triton")


# Layers


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(("N", "D"), [(37, 48), (34, 512), (9, 520)])
def test_add_norm(N: int, D: int, p: float) -> None:
    from transduce.fast.kernels.add_norm import AddNorm

    inputs = [draw(N, D, seed=1), draw(N, D, seed=2), *(draw(D, seed=seed) for seed in (3, 4, 5))]
    probes = draw(N, D, seed=6), draw(N, D, seed=7)
    given, plain = leaves(*inputs), leaves(*inputs)
    y, again = AddNorm.apply(*given, p, 1e-5)  # type: ignore[no-untyped-call]
    assert torch.equal(y, again)
    gradients = torch.autograd.grad((y, again), given, probes)
    kept = (gradients[1] != 0) / (1 - p)  # where the sub-layer has a gradient, it was not dropped
    assert kept.mean().item() == pytest.approx(1.0, abs=0.15 if p else 0.0)

    x, sublayer, bias, gain, shift = plain
    expected = F.layer_norm(x + (sublayer + bias) * kept, (D,), gain, shift)
    close(y, expected)
    for found, wanted in zip(gradients, torch.autograd.grad(expected, plain, sum(probes)), strict=True):
        close(found, wanted, 1e-4)


@pytest.mark.parametrize(("heads", "width"), [(3, 10), (40, 64)])
def test_rotate_heads(heads: int, width: int) -> None:
    from transduce.fast.kernels.rotary import RotateHeads

    rotary = Rotary(50, RotaryRates(width, 10_000.0)).to(DEVICE)
    position = torch.tensor([0, 1, 49, 2, 7], device=DEVICE)
    joint, probe = draw(5, heads * width + 8, seed=1), draw(5, heads * width + 8, seed=2)
    (given,), (plain,) = leaves(joint), leaves(joint)
    found = RotateHeads.apply(given * 1, position, rotary.waves_TK, heads)  # type: ignore[no-untyped-call]
    rotated = rotary(plain[:, : heads * width].view(5, heads, width), position).flatten(1)
    expected = torch.cat([rotated, plain[:, heads * width :]], dim=1)
    close(found, expected)
    close(torch.autograd.grad(found, given, probe.clone())[0], torch.autograd.grad(expected, plain, probe)[0])


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "swish", "geglu", "swiglu"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("N", [1, 37])
def test_linear_activation(activation: str, bias: bool, N: int) -> None:
    from transduce.fast.kernels.activation import LinearActivation

    width = 40 if activation in ("geglu", "swiglu") else 20
    inputs = [draw(N, 12, seed=1), draw(width, 12, seed=2), draw(width, seed=3)]
    given, plain = leaves(*inputs[: 3 if bias else 2]), leaves(*inputs)
    y = LinearActivation.apply(*given, *([] if bias else [None]), activation)  # type: ignore[no-untyped-call]
    offset = plain[2] if bias else None
    pre = F.linear(plain[0], plain[1], offset)
    gate, *other = pre.chunk(2, dim=-1) if width == 40 else (pre,)
    name = {"geglu": "gelu_tanh", "swiglu": "swish"}.get(activation, activation)
    expected = activate(gate, name) * (other[0] if other else 1)
    close(y, expected)
    probe = draw(*y.shape, seed=4)
    wanted = torch.autograd.grad(expected, plain[: len(given)], probe)
    for found, want in zip(torch.autograd.grad(y, given, probe), wanted, strict=True):
        close(found, want, 1e-4)


@pytest.mark.parametrize(("N", "D"), [(1, 8), (7, 24), (33, 64)])
@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize(
    ("adds", "bias", "p"), [(False, False, 0.0), (True, False, 0.0), (True, True, 0.0), (True, True, 0.3)]
)
def test_add_then_norm(N: int, D: int, rms: bool, adds: bool, bias: bool, p: float) -> None:
    from transduce.fast.kernels.pre_norm import AddThenNorm

    inputs = [draw(N, D, seed=1), *([draw(1, N, D, seed=2)] if adds else []), *([draw(D, seed=3)] if bias else [])]
    inputs += [draw(D, seed=4), *([] if rms else [draw(D, seed=5)])]
    given, plain = leaves(*inputs), leaves(*inputs)

    def arguments(tensors: list[Tensor]) -> Iterator[Tensor | None]:
        """x, the sub-layer's output, bias, gain and shift, of which some are None."""
        rest = iter(tensors)
        yield from (next(rest) if exists else None for exists in (True, adds, bias, True, not rms))

    y, total = AddThenNorm.apply(*arguments(given), p, 1e-5)  # type: ignore[no-untyped-call]
    probes = draw(N, D, seed=6), draw(N, D, seed=7)
    gradients = torch.autograd.grad((y, total), given, probes)
    x, sublayer, offset, gain, shift = arguments(plain)
    assert x is not None
    assert gain is not None
    expected = x
    if sublayer is not None:
        kept = (gradients[1][0] != 0) / (1 - p)
        expected = x + (sublayer[0] if offset is None else sublayer[0] + offset) * kept
        assert p == 0 or not kept.all() or N * D < 20
    close(total, expected)
    normed = F.rms_norm(expected, (D,), gain, 1e-5) if rms else F.layer_norm(expected, (D,), gain, shift)
    close(y, normed)
    for found, wanted in zip(gradients, torch.autograd.grad((normed, expected), plain, probes), strict=True):
        close(found, wanted, 1e-4)


def test_add_then_norm_of_several_terms() -> None:
    from transduce.fast.kernels.pre_norm import AddThenNorm

    x, terms, gain, shift = draw(7, 24, seed=1), draw(3, 7, 24, seed=2), draw(24, seed=3), draw(24, seed=4)
    y, total = AddThenNorm.apply(x, terms, None, gain, shift, 0.0, 1e-5)  # type: ignore[no-untyped-call]
    close(total, x + terms.sum(0))
    close(y, F.layer_norm(total, (24,), gain, shift))


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_embedding(p: float) -> None:
    from transduce.fast.kernels.embed import Embed

    token, position = torch.randint(0, 50, (130,), device=DEVICE), torch.randint(0, 9, (130,), device=DEVICE)
    (weight,), table, probes = leaves(draw(50, 48)), draw(9, 48), (draw(130, 48, seed=1), draw(130, 48, seed=2))
    y, again = Embed.apply(token, position.int(), weight, table, 3.0, p)  # type: ignore[no-untyped-call]
    expected = (weight[token] * 3.0 + table[position]) * (y != 0) / (1 - p)
    close(y, expected)
    (found,) = torch.autograd.grad((y, again), weight, probes)
    (wanted,) = torch.autograd.grad(expected, weight, sum(probes))
    close(found, wanted)


def test_a_mask_drops_its_share_at_every_place_and_follows_the_seed() -> None:
    from transduce.fast.kernels.embed import Embed

    def mask(seed: int) -> Tensor:
        torch.manual_seed(seed)
        ones, nowhere = torch.ones(1, 256, device=DEVICE), torch.zeros(50, dtype=torch.int32, device=DEVICE)
        y, _ = Embed.apply(nowhere.long(), nowhere, ones, torch.zeros(1, 256, device=DEVICE), 1.0, 0.25)  # type: ignore[no-untyped-call]
        return (y != 0).double()

    one, same, other = mask(1), mask(1), mask(2)
    assert torch.equal(one, same)
    assert one.mean().item() == pytest.approx(0.75, abs=0.02)  # 4.5 standard deviations of 12,800 draws
    variance = 0.75 * 0.25
    for a, b in ((one, other), (one[1:], one[:-1]), (one[:, 1:], one[:, :-1]), (one, one.flip(0))):
        correlation = ((a - 0.75) * (b - 0.75)).mean().item() / variance
        assert abs(correlation) < 0.05


def test_relu_gradient() -> None:
    from transduce.fast.kernels.linear import relu_gradient

    dy, y = draw(100, 200), draw(100, 200, seed=1).relu()
    dx, dbias = relu_gradient(dy, y)
    assert torch.equal(dx, dy * (y > 0))
    close(dbias, dx.sum(0))


@pytest.mark.parametrize("activation", ["none", "relu", "gelu_tanh"])
@pytest.mark.parametrize(("R", "D", "F_", "bias"), [(5, 24, 40, True), (70, 300, 90, False), (1, 512, 20, True)])
def test_few_rows_linear(R: int, D: int, F_: int, bias: bool, activation: str) -> None:
    from transduce.fast.kernels.few_rows import few_rows_linear

    x, weight, offset = draw(R, D, seed=1), draw(F_, D, seed=2) * D**-0.5, draw(F_, seed=3) if bias else None
    linear = F.linear(x, weight, offset)
    expected = linear if activation == "none" else activate(linear, activation)
    close(few_rows_linear(x, weight, offset, activation), expected, 1e-5)


@pytest.mark.parametrize(("R", "D", "F_", "parts"), [(5, 24, 40, 1), (3, 1024, 20, 4), (70, 700, 64, 2)])
def test_few_rows_parts(R: int, D: int, F_: int, parts: int) -> None:
    from transduce.fast.kernels.few_rows import few_rows_parts

    x, weight = draw(R, D, seed=1), draw(F_, D, seed=2) * D**-0.5
    terms = few_rows_parts(x, weight)
    assert terms.shape[1:] == (R, F_)
    if DEVICE == "cpu":
        assert len(terms) == parts
    close(terms.sum(0), x @ weight.T, 1e-5)


# Loss and optimizer


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("V", "width"), [(100, 128), (100, 100), (9000, 9024)])
def test_cross_entropy(V: int, width: int, smoothing: float) -> None:
    from transduce.fast.kernels.cross_entropy import smoothed_terms

    padded = 3 * draw(9, width)
    logits = padded[:, :V]
    labels = torch.randint(1, V, (9,), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    labels[3] = PAD
    (plain,) = leaves(logits)
    loss = F.cross_entropy(plain, labels, ignore_index=PAD, label_smoothing=smoothing, reduction="sum")
    (wanted,) = torch.autograd.grad(loss, plain)
    nll = F.cross_entropy(logits, labels, ignore_index=PAD, reduction="sum")
    sums, gradient = smoothed_terms(logits, labels, smoothing, PAD)
    close(sums, torch.stack([loss, nll]), 1e-4)
    close(gradient, wanted)
    assert not padded[:, V:].any()


@pytest.mark.parametrize(("clip_norm", "decay"), [(0.0, 0.0), (300.0, 0.0), (300.0, 0.5)])
def test_adam(clip_norm: float, decay: float) -> None:
    from transduce.fast.kernels.adam import FusedAdam

    start = [draw(3, 5), draw(4100), draw(7)]
    ours, copies, torchs = leaves(*start), leaves(*start), leaves(*start)
    for copy in copies:
        copy.grad = torch.zeros_like(copy)
    optimizer = Adam(ours, weight_decay=decay)
    groups = [{"params": torchs[1:], "weight_decay": 0.0}, {"params": torchs[:1]}]
    theirs = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9, weight_decay=decay)
    fused = FusedAdam(optimizer, copies, ours)
    for number in range(1, 6):
        for copy, weight in zip(copies, torchs, strict=True):
            weight.grad = 10 * draw(*weight.shape, seed=number)
            assert copy.grad is not None
            copy.grad.copy_(7 * weight.grad)
        for group in theirs.param_groups:
            group["lr"] = 0.01 / number
        norm = torch.nn.utils.clip_grad_norm_(torchs, clip_norm or math.inf)
        theirs.step()
        close(fused.step(number, 0.01 / number, 1 / 7, clip_norm), norm, 1e-2)
        for weight, copy, expected in zip(ours, copies, torchs, strict=True):
            close(weight, expected)
            assert torch.equal(weight, copy)
            for name in ("exp_avg", "exp_avg_sq"):
                close(optimizer.moments[weight][name], theirs.state[expected][name], 1e-3)


def test_adam_takes_no_type_that_its_kernel_would_misread() -> None:
    from transduce.fast.kernels.adam import FusedAdam

    weights, copies = leaves(draw(3)), leaves(draw(3).half())
    copies[0].grad = torch.zeros_like(copies[0])
    optimizer = Adam(weights)
    with pytest.raises(AssertionError, match="no other type"):
        FusedAdam(optimizer, copies, weights)


@pytest.mark.parametrize("clip_norm", [0.0, 300.0])
def test_adam_leaves_everything_as_it_is_where_gradients_are_not_finite(clip_norm: float) -> None:
    from transduce.fast.kernels.adam import FusedAdam

    start = [draw(3, 5), draw(4100)]
    weights, copies = leaves(*start), leaves(*start)
    for copy in copies:
        copy.grad = torch.ones_like(copy)
    optimizer = Adam(weights)
    fused = FusedAdam(optimizer, copies, weights)
    assert copies[0].grad is not None
    copies[0].grad[1, 1] = math.nan
    assert fused.step(1, 0.01, 1.0, clip_norm).isnan()
    for weight, copy, before in zip(weights, copies, start, strict=True):
        assert torch.equal(weight, before)
        assert torch.equal(copy, before)
        assert not optimizer.moments[weight]["exp_avg"].any()


# All together


@pytest.mark.parametrize(
    ("longest", "settings"),
    [
        (70, {}),
        (14, {"norm": "pre"}),
        (14, {"norm": "pre", "norm_type": "rms", "bias": False, "activation": "swiglu", "positions": "rotary"}),
        (14, {"positions": "rotary", "kv_heads": 1, "d_k": 10, "d_v": 6}),
        (14, {"bias": False}),
        (14, {"positions": "learned", "activation": "gelu", "tie_output": False}),
        (14, {"decoder_cell": "ssru"}),
        (14, {"attention": "additive"}),
        (14, {"norm": "pre", "positions": "relative"}),
    ],
    ids=lambda value: ",".join(f"{k}={v}" for k, v in value.items()) or "paper" if isinstance(value, dict) else None,
)
def test_a_fused_model_is_the_model(longest: int, settings: dict[str, Any]) -> None:
    from transduce.fast.kernels.fuse import fuse

    V = 50
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "num_heads": 2, "dropout": 0.0}
    model = small_model(vocab_size=V, max_positions=128, **sizes, **settings).to(DEVICE).train()
    lengths = {"src": [7, 1, 20, 12], "tgt": [9, 3, 1, longest]}
    sides = {name: random_sentences(lengths[name], V, seed) for seed, name in enumerate(lengths, start=1)}
    batch = Batch.of(DEVICE, **sides)
    labels = torch.randint(0, V, (sum(lengths["tgt"]),), generator=torch.Generator().manual_seed(3)).to(DEVICE)

    def run() -> list[Tensor]:
        hidden = model(batch)
        loss, nll = model.cross_entropy(hidden, labels, model.output_weight_VD, 0.1)
        return [hidden, loss, nll, *torch.autograd.grad(loss, list(model.parameters()))]

    names = list(model.state_dict())
    expected = run()
    with torch.no_grad():
        expected_without_gradients = model.eval()(batch)
    fuse(model.train())
    assert list(model.state_dict()) == names
    for found, wanted in zip(run(), expected, strict=True):
        close(found, wanted, 1e-3)
    with torch.no_grad():
        close(model.eval()(batch), expected_without_gradients, 1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"positions": "rotary", "qk_norm": True, "window": 3},
        {"positions": "rotary", "window": 3, "global_every": 2, "score_cap": 0.5, "logit_cap": 2.0},
    ],
    ids=["plain", "gemma", "gemma2"],
)
def test_a_fused_model_keeps_the_norms_after_its_sub_layers(settings: dict[str, Any]) -> None:
    from transduce.fast.kernels.fuse import fuse

    model = small_language_model(vocab_size=50, norm="both", norm_type="rms", **settings).to(DEVICE).train()
    batch = Batch.of(DEVICE, text=random_sentences([7, 1, 20], 50, 1))

    labels = torch.arange(28, device=DEVICE) % 40 + 5

    def run() -> list[Tensor]:
        hidden = model(batch)
        loss, _ = model.cross_entropy(hidden, labels, model.output_weight_VD, 0.1, model.logit_cap)
        return [hidden, *torch.autograd.grad(hidden.square().sum() + loss, list(model.decoder.parameters()))]

    expected = run()
    fuse(model)
    for found, wanted in zip(run(), expected, strict=True):
        close(found, wanted, 1e-3)
    with torch.no_grad():
        close(model.eval()(batch), expected[0], 1e-3)

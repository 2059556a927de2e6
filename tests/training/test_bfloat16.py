"""bfloat16 on a CPU: which products are computed in it, what is not, and how the precision is chosen and kept."""

import math
import re
import warnings
import wave
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import metrics
from safetensors.torch import load_file
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from toy_run import make_toy_pairs, write_lines

from transduce.config import read_toml
from transduce.data.batch import Batch, to_device
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.lookup import lookup
from transduce.nn.loss import smoothed_cross_entropy
from transduce.nn.norm import LayerNorm
from transduce.speech.sound import WINDOW
from transduce.training import measured as measuring
from transduce.training import resolve as starting
from transduce.training.api import train
from transduce.training.learner import Bfloat16Copy, Compute
from transduce.training.measured import Times, faster_precision
from transduce.training.recipe import load_recipe
from transduce.training.train_config import TrainConfig
from transduce.translation.task import Translate

# Few CPUs are fast with bfloat16.
SIZES = {"model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2}
LAYERS = {"model.encoder_layers": 1, "model.decoder_layers": 1}
STEPS = {"train.steps": 1, "train.batch_tokens": 64, "train.device": "cpu", "train.log_every": 1, "train.warmup": 1}
SETTINGS = SIZES | STEPS | {"tokenizer.vocab_size": 450, "train.precision": "bfloat16", "train.learning_rate": 1e-3}
PAIRS = make_toy_pairs(30, seed=2)


class Products(TorchDispatchMode):
    """Counts the operations of matrix products, by precision, and notes the precisions of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[torch.dtype] = Counter()
        self.attention: set[torch.dtype] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, tensors = function.overloadpacket.__name__, [x for x in args if isinstance(x, torch.Tensor)]
        if name in ("mm", "addmm"):
            left, right = tensors[-2:]
            if left.shape[-1] != WINDOW // 2 + 1:  # log-mel energies: features of the input, in float32
                self.operations[left.dtype] += math.prod(left.shape) * right.shape[-1]
        elif name in ("bmm", "baddbmm") or name.startswith("_scaled_dot_product_flash_attention_for_cpu"):
            self.attention.add(tensors[-1].dtype)
        else:
            assert not any(word in name for word in ("matmul", "scaled_dot_product", "convolution", "linear")), name
        return function(*args, **(kwargs or {}))

    @property
    def share(self) -> float:
        """The share of bfloat16."""
        return self.operations[torch.bfloat16] / self.operations.total()


def translation(folder: Path) -> dict[str, Any]:
    return {"train": write_lines(folder / "pairs.tsv", ["\t".join(pair) for pair in PAIRS]), "settings": LAYERS}


def lines(folder: Path) -> Path:
    return write_lines(folder / "text.txt", [source for source, _ in PAIRS])


def trees(folder: Path) -> Path:
    return write_lines(folder / "trees.txt", [f"(S (NP (NN {a})) (VP (VBD {b})))" for a in "xyz" for b in "uvw"])


def labelled(folder: Path) -> Path:
    return write_lines(folder / "labels.tsv", [f"{source}\t{'ab'[n % 2]}" for n, (source, _) in enumerate(PAIRS)])


def sounds(folder: Path) -> Path:
    pytest.importorskip("soundfile")
    for number in range(3):
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes((8000 * np.sin(np.arange(800) * (number + 1))).astype("<i2").tobytes())
    return write_lines(folder / "sounds.tsv", [f"{number}.wav\tba de gi" for number in range(3)])


ONE_LAYER = {"model.layers": 1}
TASKS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "translate": translation,
    "translate, T5": lambda folder: {**translation(folder), "style": "t5"},
    "translate, R-Drop": lambda folder: {**translation(folder), "settings": LAYERS | {"train.r_drop": 1.0}},
    "language_model": lambda folder: {
        "text": lines(folder), "style": "llama", "settings": ONE_LAYER | {"data.max_length": 16},
    },
    "masked": lambda folder: {"task": "masked", "text": lines(folder), "style": "bert", "settings": ONE_LAYER},
    "classify": lambda folder: {"task": "classify", "train": labelled(folder), "style": "bert", "settings": ONE_LAYER},
    "parse": lambda folder: {"task": "parse", "train": trees(folder), "settings": LAYERS},
    "transcribe": lambda folder: {
        "task": "transcribe", "train": sounds(folder), "style": "whisper",
        "settings": LAYERS | {"model.mel_bins": 8, "model.max_frames": 100, "train.batch_tokens": 3000},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_products_of_a_step_are_bfloat16_and_attention_float32(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "hopeless_product", lambda: None)
    given = TASKS[name](tmp_path)
    with Products() as products:
        outcome = train(tmp_path / "run", **{**given, "settings": SETTINGS | given["settings"]})
    assert outcome.finished
    assert products.share >= 0.99
    assert products.attention <= {torch.float32}  # not called if there is a library for this machine
    weights = load_file(tmp_path / "run" / "checkpoints" / "step-1" / "model.safetensors")
    assert all(weight.dtype == torch.float32 and weight.isfinite().all() for weight in weights.values())


def test_gradients_of_a_frequent_token_are_summed_in_float32() -> None:
    table_VD = torch.randn(5, 8).bfloat16().requires_grad_()
    index_N = torch.tensor([3] * 4000 + [1, 4, 4])
    rows_ND = lookup(index_N, table_VD)
    assert torch.equal(rows_ND, F.embedding(index_N, table_VD))
    rows_ND.backward(torch.full_like(rows_ND, 0.5))
    assert table_VD.grad is not None
    assert table_VD.grad.dtype == torch.bfloat16
    assert table_VD.grad[:, 0].tolist() == [0, 0.5, 0, 2000, 1]


def test_gradients_of_layer_norm_are_summed_in_float32() -> None:
    torch.manual_seed(0)
    x_ND, grad_ND = torch.randn(4000, 16).bfloat16(), (torch.randn(4000, 16) + 0.3).bfloat16()
    norm, wide = LayerNorm(16).bfloat16(), torch.nn.LayerNorm(16)
    norm(x_ND).backward(grad_ND)
    wide(x_ND.float()).backward(grad_ND.float())
    for half, true in zip(norm.parameters(), wide.parameters(), strict=True):
        assert half.grad is not None
        assert true.grad is not None
        assert half.grad.float() == pytest.approx(true.grad, rel=0.01, abs=1.0)


def test_gradients_of_the_projection_are_summed_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.nn.loss._CPU_CHUNK", 16)  # 300 chunks of one row
    hidden_LD, labels_L = torch.ones(300, 2).bfloat16(), torch.full([300], 5)
    weight_VD = torch.zeros(16, 2).bfloat16().requires_grad_()
    loss, _ = smoothed_cross_entropy(hidden_LD, labels_L, weight_VD, 0.0)
    loss.backward()
    assert weight_VD.grad is not None
    assert weight_VD.grad[5].tolist() == pytest.approx([300 * (1 / 16 - 1)] * 2, rel=0.005)


FAST = {96: Times(0.001, 0.005), 256: Times(0.01, 0.01)}
"""Products on a CPU with instructions for bfloat16."""


@pytest.fixture
def trial() -> tuple[EncoderDecoder, Batch]:
    torch.manual_seed(1)
    sizes = [f"{name}={value}" for name, value in (SIZES | LAYERS | {"model.dropout": 0.5}).items()]
    model = EncoderDecoder(load_recipe(None, "tiny", {}, sizes).model, 50)
    batch = to_device(Translate().pack([([5, 6, 7], [8, 9]), ([5], [6, 7])], seed=0), torch.device("cpu"))
    return model, batch


@pytest.mark.parametrize(
    ("products", "step", "chosen", "figures"),
    [
        (
            {96: Times(0.001, 0.3)},
            None,
            "float32",
            "a product of 96 x 96 x 96 takes 1 ms in float32 and 300 ms in bfloat16",
        ),
        (
            {96: Times(0.001, 0.01), 256: Times(0.01, 0.05)},
            None,
            "float32",
            "a product of 256 x 256 x 256 takes 10 ms in float32 and 50 ms in bfloat16",
        ),
        (FAST, Times(0.05, 0.02), "bfloat16", "a trial step takes 50 ms in float32 and 20 ms in bfloat16"),
        (FAST, Times(0.05, 0.045), "float32", "a trial step takes 50 ms in float32 and 45 ms in bfloat16"),
    ],
)
def test_the_faster_precision_is_taken(
    trial: tuple[EncoderDecoder, Batch],
    monkeypatch: pytest.MonkeyPatch,
    products: dict[int, Times],
    step: Times | None,
    chosen: str,
    figures: str,
) -> None:
    """If a product is hopelessly slow in bfloat16, no step is tried."""
    model, batch = trial
    monkeypatch.setattr(measuring, "product_times", products.__getitem__)
    monkeypatch.setattr(measuring, "_step_times", lambda *_: step)
    assert faster_precision(model, Translate(), TrainConfig(), batch) == (chosen, figures)


def test_warnings_of_trial_steps_are_hidden(
    trial: tuple[EncoderDecoder, Batch], monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Without instructions for bfloat16, torch warns with a stack trace."""

    def step_times(*_: object) -> Times:
        warnings.warn("no instructions", stacklevel=1)
        return Times(1, 2)

    monkeypatch.setattr(measuring, "hopeless_product", lambda: None)
    monkeypatch.setattr(measuring, "_step_times", step_times)
    faster_precision(trial[0], Translate(), TrainConfig(), trial[1])
    assert not recwarn


def test_trial_steps_change_no_state(trial: tuple[EncoderDecoder, Batch], monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = trial
    monkeypatch.setattr(measuring, "hopeless_product", lambda: None)
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    random = torch.get_rng_state()
    _, figures = faster_precision(model, Translate(), TrainConfig(), batch)
    assert figures.startswith("a trial step takes ")
    assert torch.equal(torch.get_rng_state(), random)
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_a_forward_pass_that_takes_too_long_is_aborted(trial: tuple[EncoderDecoder, Batch]) -> None:
    model, batch = trial

    class NoLoss(Translate):
        def loss(self, *_: Any) -> Any:
            raise AssertionError("the forward pass should have been aborted")

    compute = Compute(Bfloat16Copy(model), NoLoss(), 0.1, 0.0)
    assert measuring._seconds(compute, batch, model, limit=-1.0) > 0
    with pytest.raises(AssertionError):
        measuring._seconds(compute, batch, model)


def run_of(folder: Path, **changes: Any) -> dict[str, Any]:
    settings = SETTINGS | LAYERS | {"train.precision": "auto", "train.save_every": 2, "train.steps": 2}
    return {**translation(folder), "settings": settings | {f"train.{name}": value for name, value in changes.items()}}


def test_a_run_keeps_the_precision_that_was_chosen_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also on a machine on which it is slow; and the result is the same, bit for bit, as without the interruption."""
    with monkeypatch.context() as fast:
        fast.setattr(starting, "faster_precision", lambda *_: ("bfloat16", "as measured"))
        train(tmp_path / "resumed", **run_of(tmp_path))
        assert "precision: bfloat16 (as measured)" in capsys.readouterr().err
        train(tmp_path / "whole", **run_of(tmp_path, steps=4))
    assert read_toml(tmp_path / "resumed" / "config.toml")["train"]["precision"] == "bfloat16"
    monkeypatch.setattr(starting, "hopeless_product", lambda: (96, Times(1, 300)))
    capsys.readouterr()
    train(tmp_path / "resumed", **run_of(tmp_path, steps=4))
    err = capsys.readouterr().err
    assert "this CPU takes 300 times as long for a product in bfloat16 as in float32; a run keeps the precision" in err
    assert read_toml(tmp_path / "resumed" / "config.toml")["train"]["precision"] == "bfloat16"
    for name in ("model.safetensors", "optimizer.safetensors"):
        resumed, whole = (tmp_path / run / "checkpoints" / "step-4" / name for run in ("resumed", "whole"))
        assert resumed.read_bytes() == whole.read_bytes()


def test_a_run_from_before_precisions_were_measured_stays_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "run", **run_of(tmp_path, precision="float32"))
    config = tmp_path / "run" / "config.toml"
    config.write_text(re.sub(r'precision = "float32"', 'precision = "auto"', config.read_text()))
    assert read_toml(config)["train"]["precision"] == "auto"
    monkeypatch.setattr(starting, "faster_precision", lambda *_: ("bfloat16", "as measured"))
    train(tmp_path / "run", **run_of(tmp_path, steps=4))
    assert read_toml(config)["train"]["precision"] == "float32"


def test_the_validation_loss_is_that_of_float32(tmp_path: Path) -> None:
    losses = []
    for precision in ("float32", "bfloat16"):
        given = run_of(tmp_path, precision=precision, steps=12, save_every=12, learning_rate=0.01)
        train(tmp_path / precision, **given, valid=given["train"])
        valid = [record for record in metrics(tmp_path / precision) if record["kind"] == "valid"]
        losses.append(valid[-1]["loss"])
    assert losses[0] < 6
    assert losses[1] == pytest.approx(losses[0], rel=0.005)

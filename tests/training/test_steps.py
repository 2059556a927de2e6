"""Training steps: splitting when out of memory, gradients that are not finite, bfloat16, CUDA graphs, determinism."""

import json
import math
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from toy_run import TINY, make_toy_pairs, write_lines

from transduce.data.batch import Batch
from transduce.data.plan import BatchPlan
from transduce.data.variation import Variation
from transduce.errors import ConfigError, RunError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.training import learner as compute_module
from transduce.training.adam import Adam
from transduce.training.api import train
from transduce.training.learner import CapturedCompute, Compute, Learner
from transduce.training.loader import Loader
from transduce.training.measured import largest_batch
from transduce.training.recipe import load_recipe
from transduce.training.train_config import TrainConfig
from transduce.translation.task import Translate

CPU = torch.device("cpu")
SMALLEST = [  # few CPUs are fast with bfloat16
    f"model.{name}={value}"
    for name, value in {
        "encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 1, "dropout": 0.0,
    }.items()
]  # fmt: skip
# In float32, every step calls the functions that tests replace; a captured step would call them only once.
SETTINGS = TINY | {"train.steps": 4, "train.save_every": 4, "model.dropout": 0.0, "train.precision": "float32"}


@pytest.fixture
def files(tmp_path: Path, toy_pairs: Any) -> dict[str, Path]:
    return {
        name: write_lines(tmp_path / name, [pair[side] for pair in toy_pairs])
        for side, name in enumerate(("src", "tgt"))
    }


def out_of_memory_above(monkeypatch: pytest.MonkeyPatch, tokens: int) -> list[int]:
    """Make larger batches run out of memory; the sizes of those that fit are appended to the list."""
    fitting: list[int] = []
    compute = Compute.__call__

    def limited(self: Compute, batch: Batch) -> torch.Tensor:
        if max(len(batch["src"].ids_N), len(batch["tgt"].ids_N)) > tokens:
            raise torch.OutOfMemoryError("injected")
        fitting.append(len(batch["tgt"].ids_N))
        return compute(self, batch)

    monkeypatch.setattr(Compute, "__call__", limited)
    return fitting


def test_a_step_out_of_memory_is_split_and_the_run_is_the_same(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "unsplit", **files, settings=SETTINGS)
    capsys.readouterr()
    fitting = out_of_memory_above(monkeypatch, 300)
    outcome = train(tmp_path / "split", **files, settings=SETTINGS)

    assert outcome.finished
    assert len(fitting) > SETTINGS["train.steps"]
    assert "out of memory: from now on, batches of 512 tokens are split into 2 parts" in capsys.readouterr().err
    unsplit, split = (losses(tmp_path / name) for name in ("unsplit", "split"))
    assert len(unsplit) == SETTINGS["train.steps"]
    assert split == pytest.approx(unsplit, rel=1e-4)


def losses(run: Path) -> list[float]:
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["kind"] == "train"]


def test_if_even_one_sentence_does_not_fit_the_run_ends_with_an_error(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out_of_memory_above(monkeypatch, 0)
    with pytest.raises(RunError, match="out of memory even with the smallest part"):
        train(tmp_path / "run", **files, settings=SETTINGS)


def inject_into_gradients(monkeypatch: pytest.MonkeyPatch, number: float, steps: set[int]) -> None:
    """Put this number into the gradients of these steps, counted from 0."""
    compute, steps_so_far = Compute.__call__, count()

    def changed(self: Compute, batch: Batch) -> torch.Tensor:
        sums = compute(self, batch)
        if next(steps_so_far) in steps:
            gradient = next(iter(self.precision.worker.parameters())).grad
            assert gradient is not None
            gradient[-1, -1] = number
        return sums

    monkeypatch.setattr(Compute, "__call__", changed)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_step_whose_gradients_are_not_finite_is_skipped_and_counted(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    inject_into_gradients(monkeypatch, number, {1, 2})
    outcome = train(tmp_path / "run", **files, settings=SETTINGS)
    assert outcome.finished
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    taken = [record for record in records if record["kind"] == "train"]
    assert [record["skipped"] for record in taken] == [0, 1, 1, 0]
    assert ["loss" in record for record in taken] == [True, False, False, True]
    for name in ("model.safetensors", "optimizer.safetensors"):
        tensors = load_file(tmp_path / "run" / "checkpoints" / "step-4" / name)
        assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_a_run_without_finite_gradients_stops_and_names_the_pairs(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject_into_gradients(monkeypatch, math.nan, set(range(3, 100)))
    with pytest.raises(RunError, match=r"10 steps in a row, up to step 13, were not finite"):
        train(tmp_path / "run", **files, settings=SETTINGS | {"train.steps": 50})
    bad = json.loads((tmp_path / "run" / "bad_batches.json").read_text())
    assert list(bad) == [f"step {number}" for number in range(4, 14)]
    assert all(pairs and all(isinstance(pair, int) for pair in pairs) for pairs in bad.values())


@pytest.mark.parametrize("split", [2, 3, 8])
@pytest.mark.parametrize("fixed_length", [None, 60])
def test_the_parts_of_a_batch_have_its_pairs_and_a_bounded_size(
    tmp_path: Path,
    toy_pairs: Any,
    toy_tokenizer: Tokenizer,
    make_shards: Callable[..., Any],
    split: int,
    fixed_length: int | None,
) -> None:
    plan = BatchPlan(make_shards(tmp_path / "shards", toy_pairs), batch_tokens=400, seed=1)
    unsplit = Loader(Translate(), plan, Variation(toy_tokenizer), CPU)
    splitting = Loader(Translate(), plan, Variation(toy_tokenizer), CPU, fixed_length=fixed_length, split=split)
    for number in range(4):
        (expected,), parts = unsplit.batch(number), splitting.batch(number)
        most = max(len(expected["src"].ids_N), len(expected["tgt"].ids_N))
        assert most / splitting.part_tokens <= len(parts) <= 2 * split
        assert sum(part.count for part in parts) == expected.count
        labels = torch.cat([part.labels_L[: part.count] for part in parts])
        assert torch.equal(labels, expected.labels_L)
        for part in parts:
            sides = len(part["src"].ids_N), len(part["tgt"].ids_N)
            assert max(sides) <= splitting.part_tokens
            assert fixed_length is None or set(sides) == {splitting.part_tokens}


@pytest.mark.parametrize("parts", [1, 2])
def test_gradients_of_a_bfloat16_copy_update_float32_weights(
    tmp_path: Path, toy_pairs: Any, toy_tokenizer: Tokenizer, make_shards: Callable[..., Any], parts: int
) -> None:
    recipe = load_recipe(None, "tiny", {}, SMALLEST)
    plan = BatchPlan(make_shards(tmp_path / "shards", toy_pairs), batch_tokens=80, seed=1)
    batches = [Loader(Translate(), plan, Variation(toy_tokenizer), CPU).batch(number)[0] for number in range(parts)]
    tokens = sum(batch.count for batch in batches)
    norms, moved = [], []
    for half in (False, True):
        torch.manual_seed(1)
        model = EncoderDecoder(recipe.model, toy_tokenizer.vocab_size)
        before = model.embedding.weight_VD.detach().clone()
        optimizer = Adam(model.parameters())
        config = TrainConfig(precision="bfloat16" if half else "float32")
        learner = Learner(model, optimizer, Translate(), config)
        for number in (1, 2):
            for batch in batches:
                learner.compute(batch)
                if parts > 1:
                    learner.collect()
            norm = learner.update(number, 1e-3, tokens)
        norms.append(norm.item())
        moved.append(model.embedding.weight_VD.detach() - before)
        assert {weight.dtype for weight in model.parameters()} == {torch.float32}
        assert all(
            torch.equal(copy, weight.to(copy.dtype))
            for copy, weight in zip(learner.precision.worker.parameters(), model.parameters(), strict=True)
        )
    assert norms[1] == pytest.approx(norms[0], rel=0.02)
    assert torch.nn.functional.cosine_similarity(*(x.flatten() for x in moved), dim=0) > 0.95


def test_a_captured_step_replays_the_computation_on_each_batch(
    tmp_path: Path,
    toy_pairs: Any,
    toy_tokenizer: Tokenizer,
    make_shards: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`CapturedCompute` with a replacement of the CUDA graph that calls the function again."""

    def call_again(function: Callable[[], Any], after_warm_up: Callable[[], None]) -> Callable[[], Any]:
        function()
        after_warm_up()
        return function

    monkeypatch.setattr(compute_module, "capture", call_again)
    recipe = load_recipe(None, "tiny", {}, SMALLEST)
    plan = BatchPlan(make_shards(tmp_path / "shards", toy_pairs), batch_tokens=80, seed=1)
    loader = Loader(Translate(), plan, Variation(toy_tokenizer), CPU, fixed_length=60)
    outcomes = []
    for capture in (False, True):
        torch.manual_seed(1)
        model = EncoderDecoder(recipe.model, toy_tokenizer.vocab_size)
        optimizer = Adam(model.parameters())
        learner = Learner(model, optimizer, Translate(), TrainConfig(precision="bfloat16", clip_norm=1.0))
        if capture:
            learner.compute = CapturedCompute(learner.precision, Translate(), label_smoothing=0.1, r_drop=0.0)
        for number in range(3):
            (batch,) = loader.batch(number)
            sums = learner.compute(batch).clone()
            norm = learner.update(number + 1, 1e-3, batch.count)
        outcomes.append((sums, norm, model.embedding.weight_VD.detach()))
    for plain, captured in zip(*outcomes, strict=True):
        assert torch.equal(plain, captured)


def test_two_runs_with_learned_positions_are_bit_identical(tmp_path: Path) -> None:
    """With several threads and large batches: the gradient of an index, unlike that of F.embedding, varies."""
    sides = zip(*make_toy_pairs(1000, seed=5), strict=True)
    src, tgt = (write_lines(tmp_path / name, lines) for name, lines in zip(("src", "tgt"), sides, strict=True))
    changes = {"model.positions": "learned", "train.batch_tokens": 2000, "train.steps": 5, "train.save_every": 5}
    changes |= {"train.precision": "float32"}  # a measured precision depends on what else the machine does
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for run in ("first", "second"):
            train(tmp_path / run, src=src, tgt=tgt, settings=TINY | changes | {"train.device": "cpu"})
    finally:
        torch.set_num_threads(threads)
    for name in ("model.safetensors", "optimizer.safetensors"):
        first, second = (tmp_path / run / "checkpoints/step-5" / name for run in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_dropout_differs_between_steps_and_follows_the_seed(
    tmp_path: Path, toy_pairs: Any, toy_tokenizer: Tokenizer, make_shards: Callable[..., Any]
) -> None:
    recipe = load_recipe(None, "tiny", {}, ["model.dropout=0.5"])
    plan = BatchPlan(make_shards(tmp_path / "shards", toy_pairs), batch_tokens=400, seed=1)
    (batch,) = Loader(Translate(), plan, Variation(toy_tokenizer), torch.device("cuda"), fixed_length=60).batch(0)
    model = EncoderDecoder(recipe.model, toy_tokenizer.vocab_size).to("cuda")
    learner = Learner(model, Adam(model.parameters()), Translate(), recipe.train)
    losses = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        losses.append(learner.compute(batch)[0].item())
    assert losses[0] == losses[2]
    assert losses[0] != losses[1]


def test_the_largest_batch_is_only_measured_on_gpus() -> None:
    recipe = load_recipe(None, "tiny", {}, ["train.batch_tokens=auto"])
    assert recipe.train.batch_tokens == "auto"
    with pytest.raises(ConfigError, match="give a number to train on a CPU"):
        largest_batch(recipe, recipe.make_task(), EncoderDecoder(recipe.model, 50), 10_000)

"""Every task survives what translation does: SIGKILL, too little memory, and sharding over processes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fault_injection import SmallRun, assert_intact, assert_same_result
from toy_run import as_sets, make_toy_pairs, write_lines

COMMON: dict[str, Any] = {
    "tokenizer.vocab_size": 450, "data.max_length": 24, "model.d_model": 32, "model.d_ff": 64, "model.num_heads": 2,
    "model.dropout": 0.0, "train.batch_tokens": 256, "train.steps": 8, "train.save_every": 4, "train.log_every": 1,
    "train.warmup": 20, "train.learning_rate": 0.005, "train.device": "cpu", "train.average": 1, "train.samples": 0,
}  # fmt: skip
DEEP = {"model.layers": 1}
TASKS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "language_model": (["--text", "train.txt", "--style", "gpt2"], DEEP),
    "masked": (["--text", "train.txt", "--style", "bert"], DEEP),
    "denoise": (["--text", "train.txt"], {"model.encoder_layers": 1, "model.decoder_layers": 1}),
    "classify": (["--train", "train.tsv"], DEEP),
}

DIE_IN_STEP_6 = """
import os, signal
from transduce.training.steps import Steps
gradients = Steps.gradients
def die(self, step):
    if step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return gradients(self, step)
Steps.gradients = die
"""
FIRST_BATCH_TOO_LARGE = """
import torch
from transduce.training.learner import Compute
compute, failed = Compute.__call__, []
def limited(self, batch):
    if not failed:
        failed.append(True)
        raise torch.OutOfMemoryError("injected")
    return compute(self, batch)
Compute.__call__ = limited
"""


@pytest.fixture(scope="module", params=TASKS)
def small(request: pytest.FixtureRequest, transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    """A run of each task without faults."""
    folder = tmp_path_factory.mktemp(request.param)
    texts = [source for source, _ in make_toy_pairs(200, seed=3)]
    write_lines(folder / "train.txt", texts)
    write_lines(folder / "train.tsv", [f"{text}\t{text.count('ba') % 3}" for text in texts])
    files, own = TASKS[request.param]
    valid = "train.tsv" if "train.tsv" in files else "train.txt"
    write_lines(folder / f"valid{Path(valid).suffix}", (folder / valid).read_text().splitlines()[:12])
    words = ["train", "--task", request.param, *files, "--valid", f"valid{Path(valid).suffix}", "--preset", "tiny"]
    words += as_sets(COMMON | own)
    outcome = transduce(*words, "--out", "reference", cwd=folder)
    assert outcome.code == 0, outcome.err
    return SmallRun(folder, words, 0.0)


def losses(run: Path, kind: str = "train") -> list[float]:
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["kind"] == kind]


def train(transduce: Any, small: SmallRun, run: Path, *words: str, **options: Any) -> Any:
    return transduce(*small.arguments, *words, "--out", run, cwd=small.folder, **options)


def assert_same_curves(run: Path, expected: Path) -> None:
    assert len(losses(expected)) == 8
    assert losses(run) == pytest.approx(losses(expected), rel=1e-4)
    assert losses(run, "valid") == pytest.approx(losses(expected, "valid"), rel=1e-3)


def test_a_run_that_was_killed_is_resumed_bit_for_bit(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    assert train(transduce, small, tmp_path / "run", before=DIE_IN_STEP_6).code == -9
    assert_intact(tmp_path / "run")
    resumed = train(transduce, small, tmp_path / "run")
    assert resumed.code == 0, resumed.err
    assert f"resuming from {tmp_path}/run/checkpoints/step-4" in resumed.err
    assert_same_result(tmp_path / "run", small.reference)
    assert losses(tmp_path / "run") == losses(small.reference)


def test_a_batch_that_does_not_fit_is_split(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    outcome = train(transduce, small, tmp_path / "run", before=FIRST_BATCH_TOO_LARGE)
    assert outcome.code == 0, outcome.err
    assert re.search(r"out of memory: from now on, batches of 2\d\d tokens are split into 2 parts", outcome.err)
    assert_same_curves(tmp_path / "run", small.reference)


def test_a_sharded_model_learns_the_same(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    outcome = train(transduce, small, tmp_path / "run", "--set", "train.shard=true", processes=2)
    assert outcome.code == 0, outcome.err
    assert_intact(tmp_path / "run")
    assert_same_curves(tmp_path / "run", small.reference)

"""Every task survives what translation does: SIGKILL, too little memory, other threads, sharding over processes."""

import json
import random
import re
import wave
from pathlib import Path
from typing import Any

import pytest
from commands import in_cache
from fault_injection import FULL, SmallRun, assert_intact, assert_same_result, kill_after, repetitions
from toy_run import as_sets, make_toy_pairs, write_lines

from transduce.training.checkpoint import newest_step

COMMON: dict[str, Any] = {
    "tokenizer.vocab_size": 450, "data.max_length": 24, "model.d_model": 32, "model.d_ff": 64, "model.num_heads": 2,
    "model.dropout": 0.0, "train.batch_tokens": 256, "train.steps": 8, "train.save_every": 4, "train.log_every": 1,
    "train.warmup": 20, "train.learning_rate": 0.005, "train.device": "cpu", "train.average": 1, "train.samples": 0,
}  # fmt: skip
DEEP = {"model.layers": 1}
TWO_STACKS = {"model.encoder_layers": 1, "model.decoder_layers": 1}
SPEECH = {"model.mel_bins": 20, "model.max_frames": 200, "train.batch_tokens": 40_000, "transcribe.speed": 0.1}
TASKS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "translate": (["both.toml"], TWO_STACKS | {"train.bpe_dropout": 0.1}),
    "parse": (["--train", "trees.txt"], TWO_STACKS | {"model.d_model": 48}),
    "transcribe": (["--train", "sounds.tsv", "--style", "whisper"], TWO_STACKS | SPEECH),
    "language_model": (["--text", "train.txt", "--style", "gpt2"], DEEP),
    "masked": (["--text", "train.txt", "--style", "bert"], DEEP),
    "denoise": (["--text", "train.txt"], TWO_STACKS),
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
from transduce.training.learner import Learner
make, failed = Learner.__init__, []
def limited(self, *arguments):
    make(self, *arguments)
    compute = self.compute
    def compute_limited(batch):
        if not failed:
            failed.append(True)
            raise torch.OutOfMemoryError("injected")
        return compute(batch)
    compute_limited.reset = compute.reset
    self.compute = compute_limited
Learner.__init__ = limited
"""
"""Not in the trial steps of both precisions, which some processors need."""


def write_texts(folder: Path) -> None:
    """Training and validation data of all tasks."""
    pairs, chance = make_toy_pairs(200, seed=3), random.Random(4)
    nouns = ("cat", "dog", "bird")
    tree = "( (S (NP (DT the) (NN {})) (VP (VBD saw) (NP (DT the) (NN {}))) (. .)))"
    (folder / "sounds").mkdir()
    for number in range(24):
        with wave.open(str(folder / "sounds" / f"{number}.wav"), "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", "not compressed"))
            sound.writeframes(chance.randbytes(2 * chance.randint(1600, 3200)))
    lines = {
        "train.txt": [source for source, _ in pairs],
        "train.tsv": [f"{source}\t{source.count('ba') % 3}" for source, _ in pairs],
        "pairs.tsv": ["\t".join(pair) for pair in pairs],
        "trees.txt": [tree.format(chance.choice(nouns), chance.choice(nouns)) for _ in range(200)],
        "sounds.tsv": [f"sounds/{number}.wav\t{('low', 'high')[number % 2]} tone" for number in range(24)],
    }
    for name, texts in lines.items():
        write_lines(folder / name, texts)
        write_lines(folder / f"valid-{name}", texts[:12])
    directions = [
        f"[data.directions.{name}]\ntrain = 'pairs.tsv'\nvalid = 'valid-pairs.tsv'\n" for name in ("aa-bb", "bb-cc")
    ]
    (folder / "both.toml").write_text("\n".join(directions) + "reverse = true\n", encoding="utf-8")


def of(*names: str) -> pytest.MarkDecorator:
    """These tasks; with FAULTS=full, all of them. Each task has two or more of these faults, besides those of all."""
    return pytest.mark.parametrize("small", list(TASKS) if FULL else names, indirect=True)


@pytest.fixture(scope="module", params=TASKS)
def small(request: pytest.FixtureRequest, transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    """A run of each task without faults; that of translation is multilingual."""
    if request.param == "transcribe":
        pytest.importorskip("soundfile")
    folder = tmp_path_factory.mktemp(request.param)
    write_texts(folder)
    files, own = TASKS[request.param]
    texts = [word for word in files if word.endswith((".txt", ".tsv"))]
    words = ["train", "--task", request.param, *files, "--preset", "tiny"]
    words += [word for text in texts for word in ("--valid", f"valid-{text}")] + as_sets(COMMON | own)
    outcome = transduce(*words, "--out", "reference", cwd=folder)
    assert outcome.code == 0, outcome.err
    return SmallRun(folder, words, 2.0)


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


@of("parse", "transcribe", "masked")
def test_a_run_killed_at_random_moments_ends_in_the_same_weights(
    transduce: Any, small: SmallRun, tmp_path: Path
) -> None:
    chance, kills, wanted = random.Random(str(small.arguments)), 0, repetitions(1, 14)
    while kills < wanted:
        run, code = tmp_path / f"run-{kills}", -9
        while code == -9:
            before, moment = newest_step(run / "checkpoints"), chance.uniform(0.05, small.seconds)
            fault = in_cache(tmp_path / f"cache-{run.name}") + (kill_after(moment) if kills < wanted else "")
            outcome = train(transduce, small, run, before=fault)
            code, kills = outcome.code, kills + (outcome.code == -9)
            assert newest_step(run / "checkpoints") >= before
            assert_intact(run)
        assert code == 0, outcome.err
        assert_same_result(run, small.reference)
        kills += kills == 0  # a fast machine may finish before the kill


@of("translate", "language_model", "classify")
def test_a_run_may_be_resumed_with_other_threads(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    assert train(transduce, small, tmp_path / "run", before=DIE_IN_STEP_6).code == -9
    resumed = train(transduce, small, tmp_path / "run", "--set", "train.threads=2")
    assert resumed.code == 0, resumed.err
    assert_same_curves(tmp_path / "run", small.reference)


def test_a_model_that_does_not_fit_in_memory_is_one_line(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))"
    large = as_sets({"model.d_ff": 1 << 27})  # the first matrix is too large, so nothing is initialized before it
    outcome = train(transduce, small, tmp_path / "run", *large, before=limit)
    assert (outcome.code, outcome.out) == (2, "")
    assert "Traceback" not in outcome.err
    assert "out of memory; use a smaller model" in outcome.err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written_is_one_line(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    read_only = "/sys/transduce"  # also root cannot write there
    for fault, out in (("", read_only), (in_cache(Path(read_only)), tmp_path / "run")):
        outcome = train(transduce, small, Path(out), before=fault)
        assert (outcome.code, outcome.out) == (2, "")
        assert "Traceback" not in outcome.err
        assert read_only in outcome.err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@of("parse", "transcribe", "language_model", "denoise")
def test_a_batch_that_does_not_fit_is_split(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    outcome = train(transduce, small, tmp_path / "run", before=FIRST_BATCH_TOO_LARGE)
    assert outcome.code == 0, outcome.err
    assert re.search(r"out of memory: from now on, batches of [\d,]+ tokens are split into 2 parts", outcome.err)
    assert_same_curves(tmp_path / "run", small.reference)


@of("translate", "masked", "denoise", "classify")
def test_a_sharded_model_learns_the_same(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    outcome = train(transduce, small, tmp_path / "run", "--set", "train.shard=true", processes=2)
    assert outcome.code == 0, outcome.err
    assert_intact(tmp_path / "run")
    assert_same_curves(tmp_path / "run", small.reference)

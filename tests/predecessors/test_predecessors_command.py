"""Recurrent and convolutional models through the command line: train, resume, translate, score and evaluate."""

from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import CommandLine
from commands import complaint, copied_until, metrics
from toy_run import as_sets, make_toy_pairs, write_lines

COMMON: dict[str, Any] = {
    "model.d_model": 48, "model.encoder_layers": 1, "tokenizer.vocab_size": 450, "train.steps": 180,
    "train.save_every": 60, "train.log_every": 20, "train.batch_tokens": 512, "train.warmup": 40,
    "train.valid_sentences": 20, "train.average": 1,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "gru": {"model.architecture": "recurrent"},
    "lstm": {
        "model.architecture": "recurrent", "model.cell": "lstm", "model.attention": "dot", "model.decoder_layers": 2,
    },
    "convolutional": {"model.architecture": "convolutional", "model.decoder_layers": 2, "train.steps": 120},
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for name, pairs in (("train", make_toy_pairs(1000, seed=1)), ("valid", make_toy_pairs(20, seed=2))):
        write_lines(folder / f"{name}.tsv", ["\t".join(pair) for pair in pairs])
    return folder


def words_of(name: str, **changes: Any) -> list[str]:
    settings = {**COMMON, **MODELS[name], **{f"train.{key}": value for key, value in changes.items()}}
    return ["train", "--train", "train.tsv", "--valid", "valid.tsv", "--preset", "tiny", *as_sets(settings)]


@pytest.fixture(scope="module", params=list(MODELS))
def run(request: pytest.FixtureRequest, transduce: CommandLine, corpus: Path) -> Path:
    outcome = transduce(*words_of(request.param), "--out", request.param, cwd=corpus)
    assert outcome.code == 0, outcome.err
    return corpus / request.param


def test_it_learns_the_toy_language(run: Path) -> None:
    measured = [record for record in metrics(run) if record["kind"] == "valid"]
    steps = (COMMON | MODELS[run.name])["train.steps"]
    assert [record["step"] for record in measured] == list(range(60, steps + 1, 60))
    assert measured[-1]["loss"] < measured[0]["loss"]
    assert measured[-1]["bleu"] > 80
    assert "cross-attention" in (run / "report.html").read_text(encoding="utf-8").lower()


def test_it_translates_scores_and_evaluates(run: Path, transduce: CommandLine, corpus: Path) -> None:
    sources = [source for source, _ in make_toy_pairs(20, seed=2)]
    outputs = []
    for beam in ("1", "4"):
        outcome = transduce("translate", "-m", run, "--beam", beam, cwd=corpus, stdin="\n".join(sources) + "\n")
        assert outcome.code == 0, outcome.err
        outputs.append(outcome.out.splitlines())
        reversed_words = [" ".join(reversed(source.split())) for source in sources]
        assert sum(a == b for a, b in zip(outputs[-1], reversed_words, strict=True)) >= 14
    outcome = transduce("score", "-m", run, "--test", "valid.tsv", cwd=corpus)
    assert outcome.code == 0, outcome.err
    outcome = transduce("evaluate", "-m", run, "--test", "valid.tsv", cwd=corpus)
    assert outcome.code == 0, outcome.err


def test_it_is_inspected(run: Path, transduce: CommandLine, corpus: Path, tmp_path: Path) -> None:
    outcome = transduce("inspect", "babo dedu gigo", "-m", run, "--out", tmp_path / "look.html", cwd=corpus)
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "look.html").stat().st_size > 80_000


def test_fast_engines_refuse_it_in_one_line(run: Path, transduce: CommandLine, corpus: Path) -> None:
    outcome = transduce("translate", "-m", run, "--engine", "native", cwd=corpus, stdin="babo\n")
    assert "no models of the architecture" in complaint(outcome)


@pytest.mark.parametrize("name", ["gru", "convolutional"])
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(name: str, transduce: CommandLine, corpus: Path) -> None:
    words = words_of(name, steps=12, save_every=6, valid_sentences=2)
    whole = corpus / f"{name}-whole"
    assert transduce(*words, "--out", whole, cwd=corpus).code == 0
    resumed = copied_until(whole, corpus / f"{name}-resumed", 6)
    outcome = transduce(*words, "--out", resumed, cwd=corpus)
    assert f"resuming from {resumed}/checkpoints/step-6" in outcome.err
    for file in ("model", "optimizer"):
        first, second = (run / f"checkpoints/step-12/{file}.safetensors" for run in (whole, resumed))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("name", ["lstm", "convolutional"])
def test_it_trains_in_bfloat16(name: str, transduce: CommandLine, corpus: Path) -> None:
    # Few CPUs are fast with bfloat16.
    words = words_of(name, steps=2, save_every=2, batch_tokens=32, valid_sentences=2, precision="bfloat16")
    outcome = transduce(*words, "--out", f"{name}-bfloat16", cwd=corpus)
    assert outcome.code == 0, outcome.err


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", list(MODELS))
def test_it_trains_on_a_gpu_without_a_graph(name: str, transduce: CommandLine, corpus: Path) -> None:
    outcome = transduce(*words_of(name, device="cuda"), "--out", f"{name}-cuda", cwd=corpus)
    assert outcome.code == 0, outcome.err
    assert [record for record in metrics(corpus / f"{name}-cuda") if record["kind"] == "valid"][-1]["bleu"] > 60


def test_settings_of_the_transformer_are_refused(transduce: CommandLine, corpus: Path) -> None:
    outcome = transduce(*words_of("gru"), "--set", "model.num_heads=2", "--out", "refused", cwd=corpus)
    assert "unknown key num_heads" in complaint(outcome)

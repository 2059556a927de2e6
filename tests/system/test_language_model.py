"""The task language_model: training on running text, with a tiny model of its own."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from window_language_model import WindowConfig, WindowModel

from transduce import train
from transduce.generator import Generator
from transduce.models.registry import MODELS, Architecture

TEXT = "".join(f"line {number}: the cat sat on the mat.\n" for number in range(200))
SETTINGS: dict[str, Any] = {
    "model.architecture": "window", "tokenizer.type": "char", "tokenizer.vocab_size": 100, "data.max_length": 16,
    "train.batch_tokens": 128, "train.steps": 60, "train.save_every": 20, "train.log_every": 5, "train.warmup": 10,
    "train.learning_rate": 0.02, "train.label_smoothing": 0.0, "train.device": "cpu", "train.samples": 2,
}  # fmt: skip


def assignments(**changes: Any) -> list[str]:
    return [f"{name}={value}" for name, value in (SETTINGS | changes).items()]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setitem(MODELS, "window", Architecture(WindowConfig, WindowModel))
    (tmp_path / "train.txt").write_text(TEXT)
    (tmp_path / "valid.txt").write_text(TEXT[:1000])
    return {"text": tmp_path / "train.txt", "valid": tmp_path / "valid.txt"}


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def test_a_language_model_trains_validates_and_generates(files: dict[str, Path], tmp_path: Path) -> None:
    outcome = train(tmp_path / "run", **files, sets=assignments())
    assert outcome.scores.keys() == {"valid_loss", "valid_perplexity", "valid_bits_per_character"}
    valid = records(tmp_path / "run", "valid")
    assert [record["criterion"] for record in valid] == ["loss"] * 3
    assert valid[-1]["loss"] < valid[0]["loss"] < math.log(40)
    # A token is a character, and EOS is one more token.
    assert valid[-1]["bits_per_character"] == pytest.approx(valid[-1]["loss"] / math.log(2) * 1001 / 1000)
    best = min(valid, key=lambda record: record["loss"])["step"]
    assert (tmp_path / "run" / "checkpoints" / "best").readlink().name == f"step-{best}"
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for text in (
        "Bits per character on the validation set",
        "<h2>Samples</h2>",
        "continuation",
        "loss of the finished",
    ):
        assert text in report
    (final,) = records(tmp_path / "run", "final")
    assert len(final["samples"]) == 2
    assert final["samples"][0]["source"] + final["samples"][0]["reference"] == TEXT[:500]
    card = json.loads((tmp_path / "run" / "model" / "model.json").read_text(encoding="utf-8"))
    assert card["facts"]["task"] == "language_model"
    assert card["facts"]["data"] == {
        "train": [[str(files["text"])]], "documents": 1, "text_tokens": len(TEXT) + 1, "valid_documents": 1
    }  # fmt: skip
    generator = Generator.load(tmp_path / "run")
    assert generator.context == 16
    assert generator.generate("line 7: the c", max_tokens=5, temperature=0) == "at sa"


def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(files: dict[str, Path], tmp_path: Path) -> None:
    train(tmp_path / "whole", **files, sets=assignments())
    for steps in (20, 60):
        train(tmp_path / "resumed", **files, sets=assignments(**{"train.steps": steps}))
    for name in ("model", "optimizer"):
        first, second = (tmp_path / run / f"checkpoints/step-60/{name}.safetensors" for run in ("whole", "resumed"))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("model.architecture=encoder_decoder", "the task language_model needs a model of a single text"),
        ("train.bpe_dropout=0.1", "bpe_dropout"),
        ("data.reverse=true", "data.reverse: for pairs of texts; the task language_model has none"),
        ("augment.capitals=0.1", "augment"),
        ("train.batch_tokens=15", "train.batch_tokens is 15, but an example has 16 tokens"),
    ],
)
def test_mistakes_are_named(files: dict[str, Path], tmp_path: Path, assignment: str, message: str) -> None:
    settings = [one for one in assignments() if one.partition("=")[0] != assignment.partition("=")[0]]
    if "encoder_decoder" in assignment:
        settings = [one for one in settings if not one.startswith("model.")]
    with pytest.raises(Exception, match=message) as error:
        train(tmp_path / "run", **files, sets=[*settings, assignment])
    assert type(error.value).__name__ == "ConfigError"
    assert not (tmp_path / "run").exists()

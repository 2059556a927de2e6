"""A new architecture and a new task are a class and a row each: they train, resume, validate, save and load."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy_run import write_lines

from transduce import train
from transduce.data.batch import Batch, to_device
from transduce.data.packing import Example, PackedBatch, PackedStream
from transduce.errors import ModelError
from transduce.fast.choose import pick_engine
from transduce.models.folder import load_model
from transduce.models.model import Model, ModelConfig
from transduce.models.registry import MODELS, Architecture
from transduce.search.options import SearchConfig
from transduce.search.plain_engine import PlainEngine
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.training.task import Task, ValidationScore
from transduce.training.task_registry import TASKS
from transduce.training.validation import Validation
from transduce.translation.translator import Translator


@dataclass(frozen=True, kw_only=True)
class ToyConfig(ModelConfig):
    architecture: str = "toy"
    window: int = 2


class ToyModel(Model):
    """A language model: the mean of the embeddings of the last `window` tokens of the segment, and one layer."""

    config: ToyConfig

    def __init__(self, config: ToyConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.inner = nn.Linear(config.d_model, config.d_model)

    @property
    def output_weight_VD(self) -> Tensor:
        return self.embedding.weight

    def forward(self, batch: Batch) -> Tensor:
        text = batch["text"]
        x_ND = self.embedding(text.ids_N)
        total_ND, seen_N1 = x_ND, torch.ones_like(x_ND[:, :1])
        for back in range(1, self.config.window):
            inside_N1 = (text.segments.position_N >= back)[:, None].to(x_ND.dtype)
            total_ND, seen_N1 = total_ND + x_ND.roll(back, dims=0) * inside_N1, seen_N1 + inside_N1
        hidden_ND = self.inner(total_ND / seen_N1).tanh()
        return hidden_ND if batch.positions_L is None else hidden_ND[batch.positions_L]


class LastToken(Task):
    """Predict the end marker and the last token of every target: a task with one stream that asks for few positions."""

    score_name = "Accuracy"

    def pack(self, examples: Sequence[Example], seed: int) -> PackedBatch:
        labels = PackedStream.of([target for _, target in examples], end=EOS)
        text = np.concatenate([[BOS], labels.ids_N[:-1]])
        text[labels.offsets_B1[:-1]] = BOS
        positions = np.sort(np.concatenate([labels.offsets_B1[1:] - 1, labels.offsets_B1[1:] - 2])).astype(np.int64)
        asked = labels.ids_N[positions]
        return PackedBatch({"text": PackedStream(text, labels.offsets_B1)}, asked, len(asked), positions)

    def score(self, model: Model, validation: Validation, options: SearchConfig) -> ValidationScore:
        examples = [tuple(map(validation.tokenizer.encode, pair)) for pair in validation.texts]
        batch = to_device(self.pack(examples, seed=0), model.device)
        with torch.inference_mode():
            correct_L = (model(batch) @ model.output_weight_VD.T).argmax(-1) == batch.labels_L
        return ValidationScore(100 * correct_L.float().mean().item())


SETTINGS: dict[str, Any] = {
    "task": "last_token", "model.architecture": "toy", "model.d_model": 24, "model.window": 3,
    "tokenizer.vocab_size": 450, "train.steps": 30, "train.save_every": 10, "train.log_every": 5, "train.warmup": 10,
    "train.batch_tokens": 256, "train.device": "cpu",
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, toy_pairs: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setitem(MODELS, "toy", Architecture(ToyConfig, ToyModel))
    monkeypatch.setitem(TASKS, "last_token", LastToken)
    names = [("src", 0, 0), ("tgt", 1, 0), ("valid_src", 0, 250), ("valid_tgt", 1, 250)]
    return {name: write_lines(tmp_path / name, [pair[side] for pair in toy_pairs[n:]]) for name, side, n in names}


def assignments(**changes: Any) -> list[str]:
    return [f"{name}={value}" for name, value in (SETTINGS | changes).items()]


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_they_train_validate_save_and_load(files: dict[str, Path], tmp_path: Path, precision: str) -> None:
    outcome = train(tmp_path / "run", **files, sets=assignments(**{"train.precision": precision}))
    assert outcome.finished
    assert outcome.scores.keys() == {"valid_loss", "valid_perplexity", "valid_accuracy"}
    assert outcome.scores["valid_accuracy"] > 40
    measured = records(tmp_path / "run", "valid")
    assert [record["step"] for record in measured] == [10, 20, 30]
    assert measured[-1]["loss"] < measured[0]["loss"]
    best = max(measured, key=lambda record: record["accuracy"])["step"]
    assert (tmp_path / "run" / "checkpoints" / "best").readlink().name == f"step-{best}"
    assert "Accuracy of the finished model" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")

    card = json.loads((tmp_path / "run" / "model" / "model.json").read_text(encoding="utf-8"))
    assert (card["architecture"], card["model"]) == ("toy", {"d_model": 24, "window": 3})
    loaded = load_model(tmp_path / "run" / "model").model
    assert isinstance(loaded, ToyModel)
    assert loaded.config == ToyConfig(d_model=24, window=3)


def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(files: dict[str, Path], tmp_path: Path) -> None:
    train(tmp_path / "whole", **files, sets=assignments())
    for steps in (10, 30):
        train(tmp_path / "resumed", **files, sets=assignments(**{"train.steps": steps}))
    for name in ("model", "optimizer"):
        first, second = (tmp_path / run / f"checkpoints/step-30/{name}.safetensors" for run in ("whole", "resumed"))
        assert first.read_bytes() == second.read_bytes()


def test_engines_say_that_they_do_not_support_the_model(files: dict[str, Path], tmp_path: Path) -> None:
    train(tmp_path / "run", **files, sets=assignments(**{"train.steps": 10}))
    model = load_model(tmp_path / "run" / "model").model
    assert PlainEngine.supports(model, SearchConfig()) == "toy models do not generate text"
    assert isinstance(pick_engine("auto", model), PlainEngine)
    with pytest.raises(ModelError, match="toy models do not generate text"):
        Translator.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("model.architecture=encoder_decodr", "did you mean encoder_decoder"),
        ("task=translat", "no task translat .did you mean translate"),
        ("model.windw=2", "unknown key windw .did you mean window"),
        ("model.encoder_layers=2", "unknown key encoder_layers"),
    ],
)
def test_mistakes_are_named(files: dict[str, Path], tmp_path: Path, assignment: str, message: str) -> None:
    with pytest.raises(Exception, match=message) as error:
        train(tmp_path / "run", **files, sets=[*assignments(), assignment])
    assert type(error.value).__name__ == "ConfigError"

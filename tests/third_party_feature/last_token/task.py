"""The task: predict the last token of every target, and the end marker; scored by accuracy."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from transduce.cli.evaluate import Evaluation
from transduce.config import require
from transduce.data.batch import Batch, to_device
from transduce.data.packing import Example, PackedBatch, PackedStream
from transduce.files.pairs import ReadReport
from transduce.files.readers import PAIRS
from transduce.models.folder import load_model
from transduce.models.model import Model
from transduce.nn.device import pick_device
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.training.task import Task, ValidationScore
from transduce.training.validation import Validation


@dataclass(frozen=True, kw_only=True)
class LastTokenConfig:
    """The task last_token."""

    tokens: int = 1
    """Number of last tokens of a text that are predicted, besides the end marker."""

    def __post_init__(self) -> None:
        require(1 <= self.tokens <= 3, "tokens must be between 1 and 3")


class LastToken(Task):
    """One stream, of which few positions have labels."""

    score_name = "Accuracy"
    defaults = {"model": {"architecture": "window"}}  # noqa: RUF012
    settings: LastTokenConfig

    def __init__(self, settings: LastTokenConfig | None = None) -> None:
        super().__init__(settings or LastTokenConfig())

    def pack(self, examples: Sequence[Example], seed: int) -> PackedBatch:
        labels = PackedStream.of([target for _, target in examples], end=EOS)
        text = np.concatenate([[BOS], labels.ids_N[:-1]])
        text[labels.offsets_B1[:-1]] = BOS
        ends = labels.offsets_B1[1:]
        first = np.maximum(labels.offsets_B1[:-1], ends - 1 - self.settings.tokens)
        positions = np.concatenate([np.arange(*span) for span in zip(first, ends, strict=True)]).astype(np.int64)
        chosen = labels.ids_N[positions]
        return PackedBatch({"text": PackedStream(text, labels.offsets_B1)}, chosen, len(chosen), positions)

    def score(self, model: Model, validation: Validation, options: SearchConfig) -> ValidationScore:
        examples = [tuple(map(validation.tokenizer.encode, pair)) for pair in validation.texts]
        return ValidationScore(accuracy(model, to_device(self.pack(examples, seed=0), model.device)))


def evaluate(request: Evaluation) -> None:
    """Score a model on a test set, for `transduce evaluate`."""
    request.require_effect()
    files = [str(path) for path in (request.test, request.src, *request.refs) if path]
    require(
        len(files) == 1 + (not request.test) and len(request.folders) == 1,
        "give one model, and --test or --src and --ref",
    )
    saved = load_model(request.folders[0], pick_device(request.device))
    pairs = list(PAIRS.read([tuple(files)], ReadReport()))
    examples = [tuple(map(saved.tokenizer.encode, pair)) for pair in pairs]
    value = accuracy(saved.model, to_device(LastToken().pack(examples, seed=0), saved.model.device))
    print(json.dumps({"accuracy": value}) if request.as_json else f"Accuracy  {value:6.2f}")


def accuracy(model: Model, batch: Batch) -> float:
    """Percentage of the labels that are the most likely tokens."""
    with torch.inference_mode():
        return 100 * (model.logits(model(batch)).argmax(-1) == batch.labels_L).float().mean().item()

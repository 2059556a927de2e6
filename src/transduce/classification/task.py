"""Classification of texts or images, scored by accuracy and macro F1."""

import json
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.classification.classifier import Classifier
from transduce.classification.labelled import IMAGES, LABELLED
from transduce.cli.evaluate import Evaluation, read_test_set
from transduce.cli.messages import warn_of_cut_texts
from transduce.config import require
from transduce.data.batch import Batch
from transduce.data.packing import Example, PackedBatch, PackedStream, TokenIds
from transduce.data.plan import BatchPlan, PartShape, Plan
from transduce.data.shards import TokenShards
from transduce.errors import ConfigError, DataError
from transduce.files.texts import one_line
from transduce.models.model import Model, ModelConfig
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.training.task import Task, ValidationScore
from transduce.training.validation import Validation

_IMAGES_AT_ONCE = 256
_LONGEST_SAMPLE = 500


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig:
    """The task classify."""

    shift: int = 0
    """Augmentation of images: move each by up to this many pixels in both directions, drawn anew in every epoch."""

    def __post_init__(self) -> None:
        require(0 <= self.shift <= 1000, "shift must be between 0 and 1000")


class ImagePlan(BatchPlan):
    """Batches of images, all of the same size: a batch of fixed shape has a whole number of them."""

    @property
    def longest(self) -> int:
        return int(self.shards.index["longest"])

    def part_shape(self, split: int, processes: int, *, varied: bool) -> PartShape:
        sequences = -(-(self.batch_tokens // self.longest) // (split * processes))
        return PartShape(sequences * self.longest, sequences, filler_segments=0)


class Classify(Task):
    """Texts between BOS and EOS, or the pixels of images, and the number of a class plus one as the label."""

    reader: str = "labelled"  # type: ignore[misc]
    markers: int = 2  # type: ignore[misc]
    score_name = "Accuracy"
    figures: ClassVar = {"accuracy": "Accuracy", "macro_f1": "Macro F1"}
    samples = ("Classified texts", ("text", "predicted class", "class"))
    defaults: ClassVar = {"model": {"architecture": "encoder_only", "classes": 1}, "train": {"label_smoothing": 0.0}}
    measured = ("classes", "image_height", "image_width", "channels")
    new_parts = ("head.", "output.")

    settings: ClassifyConfig

    def __init__(self, settings: ClassifyConfig | None = None, source: str = "text") -> None:
        super().__init__(settings or ClassifyConfig())
        self._images = source == "image"
        self.counted = "images" if self._images else "texts"
        if self._images:
            self.reader, self.markers = "images", 0
        self._labels: list[str] = []
        self._shape = (0, 0, 0)

    @classmethod
    def of(cls, recipe: Any) -> Self:
        return cls(recipe.task_settings, getattr(recipe.model, "source", "text"))

    def refusal(self, config: ModelConfig) -> str | None:
        if self.settings.shift and not self._images:
            return "classify.shift is for images (model.source=image)"
        if config.architecture != "encoder_only":
            return "the task classify needs model.architecture=encoder_only"
        return None

    def model_settings(self, index: Mapping[str, Any]) -> dict[str, Any]:
        """The number of classes, and the size of the images."""
        self._labels = index["labels"]
        require(len(self._labels) > 1, f"all examples have the label {self._labels[0]}; a classifier needs several")
        if not self._images:
            return {"classes": len(self._labels)}
        self._shape = tuple(index["shape"])
        return {"classes": len(self._labels)} | dict(zip(self.measured[1:], self._shape, strict=True))

    def facts(self, config: ModelConfig) -> dict[str, Any]:
        return {"labels": list(self._labels)}

    def plan(self, shards: TokenShards, batch_tokens: int, seed: int, *, growth: float, max_length: int) -> Plan:
        """Images have one length."""
        plan = ImagePlan if self._images else BatchPlan
        return plan(shards, batch_tokens, seed, growth, self.markers)

    def max_labels(self, tokens: int, segments: int) -> int:
        """One for each text or image."""
        return segments

    def vary(self, examples: Sequence[Example], seed: int) -> Sequence[Example]:
        if not self.settings.shift:
            return examples
        return [(self._moved(np.asarray(pixels), seed), label) for pixels, label in examples]

    def _moved(self, pixels: Any, seed: int) -> TokenIds:
        """The image moved at random, with black pixels where it was; a function of the image and the seed."""
        chance, most = random.Random(f"{seed} {zlib.crc32(pixels.tobytes())}"), self.settings.shift
        down, right = chance.randint(-most, most), chance.randint(-most, most)
        image_HWC = pixels.reshape(self._shape)
        padded = np.pad(image_HWC, ((most, most), (most, most), (0, 0)))
        height, width, _ = self._shape
        moved: TokenIds = padded[most - down :, most - right :][:height, :width].reshape(-1)
        return moved

    def pack(self, examples: Sequence[Example], seed: int) -> PackedBatch:
        """The stream `text` or `image`, and a label for each example."""
        inputs, labels = zip(*examples, strict=True)
        if self._images:
            pixels = np.concatenate(inputs, dtype=np.int64, casting="unsafe")
            offsets = np.cumsum([0, *map(len, inputs)], dtype=np.int32)
            streams = {"image": PackedStream(pixels, offsets)}
        else:
            marker = np.array([BOS])
            streams = {"text": PackedStream.of([np.concatenate([marker, ids]) for ids in inputs], end=EOS)}
        classes = np.array([label[0] for label in labels], np.int64)
        return PackedBatch(streams, classes + 1, count=len(classes))

    def loss(self, model: Model, hidden_LD: Tensor, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        """The classes are labels minus one; label 0 is filler."""
        logits_LC, counts_L = model.logits(hidden_LD).float(), batch.labels_L > 0
        class_L = (batch.labels_L - 1).clamp(min=0)
        smoothed_L = F.cross_entropy(logits_LC, class_L, reduction="none", label_smoothing=smoothing)
        nll_L = F.cross_entropy(logits_LC.detach(), class_L, reduction="none")
        return (smoothed_L * counts_L).sum(), (nll_L * counts_L).sum()

    def validation_examples(self, validation: Validation, log: Callable[[str], None]) -> list[Example]:
        """A text that is too long is cut; a label without training examples is an error."""
        class_of = {label: [number] for number, label in enumerate(self._labels)}
        inputs, labels = zip(*validation.texts, strict=True) if validation.texts else ((), ())
        if unknown := sorted(set(labels) - class_of.keys()):
            raise DataError(f"validation data has the label {unknown[0]}, which no training example has")
        if not self._images:
            encoded = validation.tokenizer.encode_all(inputs, threads=-1)
            ids: list[Any] = [tokens[: validation.data.max_length] for tokens in encoded]
            self.validation_tokens = max(self.validation_tokens, validation.data.max_length + self.markers)
        else:
            if wrong := [image.shape for image in inputs if image.shape != self._shape]:
                raise DataError(f"validation images have the shape {wrong[0]}, training images {self._shape}")
            ids = [image.reshape(-1) for image in inputs]
            self.validation_tokens = _IMAGES_AT_ONCE * (int(np.prod(self._shape)) + 1)
        examples: list[Example] = [(tokens, class_of[label]) for tokens, label in zip(ids, labels, strict=True)]
        return examples

    def score(self, model: Model, validation: Validation, options: SearchConfig) -> ValidationScore | None:
        """Accuracy, macro F1 and confusion matrix of all validation examples."""
        predicted: list[int] = []

        def count() -> list[int]:
            right: list[int] = []
            for batch in validation.batches(model.device):
                with torch.inference_mode():
                    predicted.extend(model.logits(model(batch)).argmax(-1).tolist())
                right += (batch.labels_L - 1).tolist()
            return right

        counted = ClassScores.of(validation.interruptible(count), predicted, self._labels)
        totals = validation.processes.total(*counted.counts_CC.reshape(-1).tolist())
        scores = ClassScores(self._labels, np.array(totals, np.int64).reshape(counted.counts_CC.shape))
        samples = []
        if not self._images and validation.processes.is_main:
            first = validation.texts[: validation.recipe.train.samples] if validation.processes.count == 1 else []
            samples = [
                {"source": text[:_LONGEST_SAMPLE], "output": self._labels[guess], "reference": label}
                for (text, label), guess in zip(first, predicted, strict=False)
            ]
        return ValidationScore(scores.accuracy, samples, {"macro_f1": scores.macro_f1}, confusion=scores.to_table())


@dataclass(frozen=True)
class ClassScores:
    """Counts of predictions: one row for each right class, one column for each predicted class."""

    labels: Sequence[str]
    counts_CC: npt.NDArray[np.int64]

    @classmethod
    def of(cls, right: Sequence[int], predicted: Sequence[int], labels: Sequence[str]) -> "ClassScores":
        """Count the right and the predicted class of each example."""
        counts_CC = np.zeros((len(labels), len(labels)), np.int64)
        np.add.at(counts_CC, (np.asarray(right, np.int64), np.asarray(predicted, np.int64)), 1)
        return cls(labels, counts_CC)

    @property
    def accuracy(self) -> float:
        """Percentage of the examples whose class is predicted."""
        return 100 * float(np.trace(self.counts_CC)) / max(1, int(self.counts_CC.sum()))

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that occur, right or predicted, in percent."""
        right, both = np.diag(self.counts_CC), self.counts_CC.sum(axis=0) + self.counts_CC.sum(axis=1)
        occurs = both > 0
        return 100 * float((2 * right[occurs] / both[occurs]).mean()) if occurs.any() else 0.0

    def to_table(self) -> dict[str, Any]:
        """The confusion matrix in JSON's types."""
        return {"labels": list(self.labels), "counts": self.counts_CC.tolist()}


def evaluate_classes(request: Evaluation) -> None:
    """Print accuracy, macro F1 and the confusion matrix of a classifier on labelled texts or images."""
    request.require_effect()
    src, refs, test = request.src, request.refs, request.test
    by_itself = len(request.folders) == 1 and not request.hyps and not request.out
    if not by_itself or (test is None) != (src is not None and len(refs) == 1):
        raise ConfigError(
            "a classifier is evaluated by itself, with labelled texts or images: give --test, or --src and --ref "
            "with images and labels as IDX files"
        )
    files = (str(test),) if test else (str(src), str(refs[0]))
    (folder,) = request.folders
    classifier = Classifier.load(folder, device=request.device, threads=request.threads)
    reader = IMAGES if classifier.reads_images else LABELLED
    inputs, labels = zip(*read_test_set(reader.read, *files), strict=True)
    number = {label: index for index, label in enumerate(classifier.labels)}
    if unknown := sorted(set(labels) - number.keys()):
        raise DataError(f"{' + '.join(files)}: the label {unknown[0]} is not a class of {folder}")
    predicted = classifier.probabilities(inputs).argmax(axis=1)
    warn_of_cut_texts(classifier.texts_cut, classifier.max_length)
    scores = ClassScores.of([number[label] for label in labels], predicted.tolist(), classifier.labels)
    if request.as_json:
        table: dict[str, Any] = {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1, "examples": len(labels)}
        print(json.dumps(table | {"confusion": scores.to_table()}, ensure_ascii=False, indent=1))
        return
    print(f"Accuracy  {scores.accuracy:6.2f}   of {len(labels):,} examples")
    print(f"Macro F1  {scores.macro_f1:6.2f}")
    print()
    _print_matrix(scores.labels, scores.counts_CC.tolist())


def _print_matrix(labels: Any, counts: list[list[int]]) -> None:
    """A row for each right class, a column for each predicted class."""

    rows = [
        ["class / predicted", *labels],
        *([label, *map(str, row)] for label, row in zip(labels, counts, strict=True)),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print(one_line("  ".join([first.ljust(widths[0]), *cells])))

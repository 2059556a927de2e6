"""Accuracy, macro F1 and the confusion matrix; `transduce evaluate` for classifiers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.classification.classifier import Classifier
from transduce.classification.labelled import IMAGES, LABELLED
from transduce.cli.evaluate import Evaluation
from transduce.cli.messages import warn_of_cut_texts
from transduce.errors import ConfigError, DataError
from transduce.files.pairs import ReadReport
from transduce.files.texts import one_line


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
    (folder,), report = request.folders, ReadReport()
    classifier = Classifier.load(folder, device=request.device, threads=request.threads)
    reader = IMAGES if classifier.reads_images else LABELLED
    inputs, labels = zip(*reader.read([files], report), strict=True)
    if report.left_out:
        raise ConfigError(f"{' + '.join(files)} cannot be a test set: {'; '.join(report.lines())}")
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

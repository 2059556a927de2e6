"""`transduce evaluate` for classifiers."""

import json
from pathlib import Path
from typing import Any


def evaluate_classes(folder: Path, files: tuple[str, ...], device: str, threads: int | None, as_json: bool) -> None:
    """Print accuracy, macro F1 and the confusion matrix of a classifier on labelled texts or images."""
    from transduce.classification.classes import ClassScores
    from transduce.classification.classifier import Classifier
    from transduce.cli.messages import warn_of_cut_texts
    from transduce.errors import ConfigError, DataError
    from transduce.files.pairs import ReadReport
    from transduce.files.readers import READERS

    classifier, report = Classifier.load(folder, device=device, threads=threads), ReadReport()
    reader = READERS["images" if classifier.reads_images else "labelled"]
    inputs, labels = zip(*reader.read([files], report), strict=True)
    if report.left_out:
        raise ConfigError(f"{' + '.join(files)} cannot be a test set: {'; '.join(report.lines())}")
    number = {label: index for index, label in enumerate(classifier.labels)}
    if unknown := sorted(set(labels) - number.keys()):
        raise DataError(f"{' + '.join(files)}: the label {unknown[0]} is not a class of {folder}")
    predicted = classifier.probabilities(inputs).argmax(axis=1)
    warn_of_cut_texts(classifier)
    scores = ClassScores.of([number[label] for label in labels], predicted.tolist(), classifier.labels)
    if as_json:
        table: dict[str, Any] = {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1, "examples": len(labels)}
        print(json.dumps(table | {"confusion": scores.to_table()}, ensure_ascii=False, indent=1))
        return
    print(f"Accuracy  {scores.accuracy:6.2f}   of {len(labels):,} examples")
    print(f"Macro F1  {scores.macro_f1:6.2f}")
    print()
    _print_matrix(scores.labels, scores.counts_CC.tolist())


def _print_matrix(labels: Any, counts: list[list[int]]) -> None:
    """A row for each right class, a column for each predicted class."""
    from transduce.files.texts import one_line

    rows = [
        ["class / predicted", *labels],
        *([label, *map(str, row)] for label, row in zip(labels, counts, strict=True)),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print(one_line("  ".join([first.ljust(widths[0]), *cells])))

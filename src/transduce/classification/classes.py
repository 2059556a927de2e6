"""Scores of a classifier: accuracy, macro F1 and the confusion matrix."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


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

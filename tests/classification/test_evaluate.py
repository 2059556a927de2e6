"""Scores of classifiers, against a small example that is counted by hand."""

import pytest

from transduce.classification.evaluate import ClassScores


def test_class_scores() -> None:
    scores = ClassScores.of([0, 0, 1, 1, 1], [0, 1, 1, 1, 0], ["a", "b", "never"])
    assert scores.accuracy == 60
    assert scores.to_table()["counts"] == [[1, 1, 0], [1, 2, 0], [0, 0, 0]]
    assert scores.macro_f1 == pytest.approx(100 * (1 / 2 + 2 / 3) / 2)

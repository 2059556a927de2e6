"""Scores of transcripts: word error rate and exact match."""

from collections.abc import Sequence

import numpy as np


def word_error_rate(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Words to insert, delete or replace in the outputs, in percent of the words of the references."""
    pairs = [(output.split(), reference.split()) for output, reference in zip(outputs, references, strict=True)]
    return 100 * sum(edits(*pair) for pair in pairs) / max(1, sum(len(reference) for _, reference in pairs))


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Percentage of outputs that have the words of the reference."""
    same = [a.split() == b.split() for a, b in zip(outputs, references, strict=True)]
    return 100 * sum(same) / max(1, len(same))


def edits(first: Sequence[str], second: Sequence[str]) -> int:
    """The Levenshtein distance of two sequences."""
    distance = np.arange(len(second) + 1)
    for number, item in enumerate(first, start=1):
        replaced = distance[:-1] + np.array([item != other for other in second], dtype=np.int64)
        least = np.concatenate([[number], np.minimum(replaced, distance[1:] + 1)])
        places = np.arange(len(least))
        distance = np.minimum.accumulate(least - places) + places  # insertions
    return int(distance[-1])

"""Pairs whose lengths do not go together.

Gale and Church 1993, "A Program for Aligning Sentences in Bilingual Corpora": the target of a source of l characters
has c·l of them, with a variance that grows as the length does. c and the variance are the corpus's own.
"""

from dataclasses import dataclass

import numpy as np

from transduce.corpora.check.robust import Floats, spread

IMPROBABLE = 5.0
"""Standard deviations from which on a pair is reported."""


@dataclass(frozen=True)
class LengthModel:
    """How long a target is for its source."""

    ratio: float
    spread: float

    @staticmethod
    def fit(src: Floats, tgt: Floats) -> "LengthModel":
        """The model of these lengths in characters, by medians: wrong pairs hardly move it."""
        ratio = float(np.median(tgt / src))
        return LengthModel(ratio, spread(_deviations(src, tgt, ratio), least=0.5))

    def deviations(self, src: Floats, tgt: Floats) -> Floats:
        """By how many standard deviations each target is too long, or too short."""
        return _deviations(src, tgt, self.ratio) / self.spread


def _deviations(src: Floats, tgt: Floats, ratio: float) -> Floats:
    expected = ratio * src
    return (tgt - expected) / np.sqrt((expected + tgt) / 2)

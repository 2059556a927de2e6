"""A model of sentence lengths, which detects pairs whose lengths do not match.

Gale and Church 1993, "A Program for Aligning Sentences in Bilingual Corpora": the target of a source of l characters
has c·l characters on average, with a variance proportional to the length. c and the variance are fitted to the corpus.
"""

from dataclasses import dataclass

import numpy as np

from transduce.corpora.check.robust_statistics import Floats, robust_std

IMPROBABLE = 5.0
"""Number of standard deviations above which a pair is reported."""


@dataclass(frozen=True)
class LengthModel:
    """The expected length of a target, given that of its source."""

    ratio: float
    std: float

    @staticmethod
    def fit(src: Floats, tgt: Floats) -> "LengthModel":
        """Fit the model to lengths in characters, by medians, which wrong pairs hardly change."""
        ratio = float(np.median(tgt / src))
        return LengthModel(ratio, robust_std(_deviations(src, tgt, ratio), minimum=0.5))

    def deviations(self, src: Floats, tgt: Floats) -> Floats:
        """The number of standard deviations by which each target is too long (positive) or too short (negative)."""
        return _deviations(src, tgt, self.ratio) / self.std


def _deviations(src: Floats, tgt: Floats, ratio: float) -> Floats:
    expected = ratio * src
    return (tgt - expected) / np.sqrt((expected + tgt) / 2)

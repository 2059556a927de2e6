"""Fits the confidence of a translator to the chrF of its translations, by ridge regression."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from transduce.engines.engine import search_all
from transduce.errors import DataError
from transduce.evaluation.scores import sentence_chrf
from transduce.translator.confidence import FEATURES, Calibration, Values, observe
from transduce.translator.translator import Translator

MIN_PAIRS = 50
"""The smallest number of pairs that a calibration is fitted on."""
_RIDGE = 0.01
_DECILES = 10


@dataclass(frozen=True)
class CalibrationReport:
    """How well confidence and chrF agree."""

    spearman: float
    """Rank correlation."""
    error: float
    """Calibration error: mean difference of mean confidence and mean chrF / 100 in each decile of confidence."""


def fit_calibration(
    translator: Translator, pairs: Sequence[tuple[str, str]], to: str | None = None
) -> tuple[Calibration, CalibrationReport]:
    """Translate the sources of pairs, and fit the confidence to the chrF of the outputs with the targets.

    The report is on the same pairs. The translator must not protect spans.
    """
    if len(pairs) < MIN_PAIRS:
        raise DataError(f"{len(pairs)} pairs are too few to calibrate with; give at least {MIN_PAIRS}")
    sources, references = zip(*pairs, strict=True)
    texts, features = _translate(translator, sources, to)
    chrf = np.array(sentence_chrf(texts, references)) / 100
    calibration = fit(features, chrf)
    return calibration, report(np.array([calibration.confidence(own) for own in features]), chrf)


def _translate(translator: Translator, sources: Sequence[str], to: str | None) -> tuple[list[str], Values]:
    """The best translation of each text, and its features: the mean over its parts, weighted by their tokens."""
    config = replace(translator.config, nbest=1)
    lines = [translator.parts(source, to=to) for source in sources]
    parts = [part for line in lines for part in line]
    results = search_all(translator.engine_for(config), parts, config)
    outputs = translator.translations(parts, results, config, align=False)
    evidence = observe(translator.model, translator.tokenizer, parts, results)
    tokens = iter([len(best[0].tokens) + 1 for best in results])
    seen = iter([own[0].features for own in evidence])
    texts, features = [], []
    for line in lines:
        texts.append(translator.join_by_rank(line, [next(outputs) for _ in line])[0].text)
        features.append(np.average([next(seen) for _ in line], axis=0, weights=[next(tokens) for _ in line]))
    return texts, np.array(features)


def fit(features: Values, chrf: Values) -> Calibration:
    """Ridge regression of chrF / 100 on the features (one row for each output), each of which is standardised."""
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale[scale < 1e-6] = 1.0  # a constant feature, as attention in models without cross-attention, has no weight
    x = (features - mean) / scale
    covariance = x.T @ x / len(x) + _RIDGE * np.eye(len(FEATURES))
    weights = np.linalg.solve(covariance, x.T @ (chrf - chrf.mean()) / len(x))
    rounded = [tuple(round(float(value), 6) for value in row) for row in (mean, scale, weights)]
    return Calibration(rounded[0], rounded[1], rounded[2], round(float(chrf.mean()), 6))


def report(confidence: Values, chrf: Values) -> CalibrationReport:
    """The agreement of confidence and chrF / 100."""
    groups = np.array_split(np.argsort(confidence, kind="stable"), _DECILES)
    errors = [abs(confidence[group].mean() - chrf[group].mean()) for group in groups if len(group)]
    return CalibrationReport(spearman(confidence, chrf), float(np.mean(errors)))


def spearman(a: Values, b: Values) -> float:
    """Spearman's rank correlation; 0 if one side is constant."""
    a, b = _ranks(a), _ranks(b)
    return float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else 0.0


def _ranks(values: Values) -> Values:
    """The rank of each value; equal values have the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

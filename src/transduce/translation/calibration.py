"""Fits the confidence of a translator to the chrF of its translations, by ridge regression."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from transduce.errors import DataError
from transduce.search.decoder import Hypothesis
from transduce.search.engine import search_all
from transduce.translation.confidence import FEATURES, Calibration, observe
from transduce.translation.scores import sentence_chrf
from transduce.translation.stages.search import run_searches
from transduce.translation.translator import Translator

MIN_PAIRS = 50
"""The smallest number of pairs that a calibration is fitted on."""
_RIDGE = 0.01
_DECILES = 10

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CalibrationReport:
    spearman: float
    """Rank correlation of the confidence."""
    raw_spearman: float
    """Rank correlation of the log-probability per token, for comparison."""
    error: float
    """Calibration error: mean difference of mean confidence and mean chrF / 100 in each decile of confidence."""

    def __str__(self) -> str:
        return (
            f"Spearman correlation with chrF {self.spearman:.3f} (log-probability per token: {self.raw_spearman:.3f}), "
            f"calibration error {self.error:.3f}"
        )


def fit_calibration(
    translator: Translator, pairs: Sequence[tuple[str, str]], to: str | None = None
) -> tuple[Calibration, CalibrationReport]:
    """Translate the sources of pairs, and fit the confidence to the chrF of the outputs with the targets.

    The report is on the same pairs. The translator must not protect spans.
    """
    if len(pairs) < MIN_PAIRS:
        raise DataError(f"{len(pairs)} pairs are too few to calibrate with; give at least {MIN_PAIRS}")
    features, chrf = _observations(translator, pairs, to)
    calibration = fit(features, chrf)
    return calibration, _report(calibration, features, chrf)


def measure_calibration(
    translator: Translator, pairs: Sequence[tuple[str, str]], to: str | None = None
) -> CalibrationReport:
    """The agreement of the translator's confidence with chrF, on pairs that it was not fitted on."""
    calibration = translator.calibration(to)
    return _report(calibration, *_observations(translator, pairs, to))


def human_agreement(translator: Translator, table: Path, to: str | None = None) -> str:
    """The rank correlation of confidence with the scores that people gave translations, of any system, in a table.

    The columns are those of mlqe-pe: original, translation, and z_mean or mean.
    """
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    try:
        judged = [(row["original"], row["translation"], float(row.get("z_mean") or row["mean"])) for row in rows]
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{table}: rows need the columns original, translation, and z_mean or mean") from None
    if len(judged) < MIN_PAIRS:
        raise DataError(f"{table}: {len(judged)} rows are too few to measure with; give at least {MIN_PAIRS}")
    segments = [translator.whole(source, to) for source, _, _ in judged]
    encoded = translator.tokenizer.target.encode_all([output for _, output, _ in judged])
    outputs = [Hypothesis(tokens, 0.0, 0.0) for tokens in encoded]
    observed = observe(translator.reader, translator.tokenizer, segments, outputs)
    features = np.array([evidence.features for evidence in observed])
    scores = np.array([score for _, _, score in judged])
    report = _report(translator.calibration(to), features, scores)
    log_prob = f"log-probability per token: {report.raw_spearman:.3f}"
    return f"Spearman correlation with human scores {report.spearman:.3f} ({log_prob})"


def fit(features: Values, chrf: Values) -> Calibration:
    """Ridge regression of chrF / 100 on the features (one row for each output), each of which is standardised."""
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale[scale < 1e-6] = 1.0  # a constant feature, as attention in models without cross-attention, has no weight
    x = (features - mean) / scale
    covariance = x.T @ x / len(x) + _RIDGE * np.eye(len(FEATURES))
    weights = np.linalg.solve(covariance, x.T @ (chrf - chrf.mean()) / len(x))
    rounded = [tuple(round(float(value), 6) for value in row) for row in (mean, scale, weights)]
    return Calibration(rounded[0], rounded[1], rounded[2], round(float(chrf.mean()), 6))


def _report(calibration: Calibration, features: Values, chrf: Values) -> CalibrationReport:
    confidence = np.array([calibration.confidence(row.tolist()) for row in features])
    log_prob = features[:, FEATURES.index("log_prob")]
    return CalibrationReport(spearman(confidence, chrf), spearman(log_prob, chrf), decile_error(confidence, chrf))


def decile_error(confidence: Values, chrf: Values) -> float:
    """The mean absolute difference of mean confidence and mean chrF / 100 in each decile of confidence."""
    deciles = np.array_split(np.argsort(confidence, kind="stable"), _DECILES)
    return float(np.mean([abs(confidence[decile].mean() - chrf[decile].mean()) for decile in deciles if len(decile)]))


def spearman(a: Values, b: Values) -> float:
    """Spearman's rank correlation; 0 if one side is constant."""
    a, b = _ranks(a), _ranks(b)
    return float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else 0.0


def _ranks(values: Values) -> Values:
    """The rank of each value; equal values have the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _observations(translator: Translator, pairs: Sequence[tuple[str, str]], to: str | None) -> tuple[Values, Values]:
    """The features of the best translation of each source, and its chrF / 100 with the target."""
    sources, references = zip(*pairs, strict=True)
    config = replace(translator.config, nbest=1)
    lines = [translator.segments(source, to=to) for source in sources]
    segments = [segment for line in lines for segment in line]
    results = search_all(translator.engine_for(config), segments, config)
    remaining = iter(results)
    found = [[next(remaining) for _ in line] for line in lines]
    searches = translator.translation_searches(lines, found, config, align=False)
    outputs = iter(run_searches(translator.repairing_engine(config), searches))
    evidence = iter(observe(translator.reader, translator.tokenizer, segments, [best for (best,) in results]))
    texts, features = [], []
    for line in lines:
        translations = [next(outputs) for _ in line]
        texts.append(translator.join_by_rank(line, translations)[0].text)
        weights = [len(best[0].tokens) + 1 for best in translations]  # as when the segments of a text are joined
        features.append(np.average([next(evidence).features for _ in line], axis=0, weights=weights))
    return np.array(features), np.array(sentence_chrf(texts, references)) / 100

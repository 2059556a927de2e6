"""BLEU, chrF and TER by sacreBLEU, with its signature, which makes scores comparable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from transduce.errors import DataError

METRICS: dict[str, Callable[..., Metric]] = {"BLEU": BLEU, "chrF2": CHRF, "TER": TER}
LOWER_IS_BETTER = {"TER"}


@dataclass(frozen=True)
class Score:
    """The score of one system in one metric."""

    metric: str
    value: float
    signature: str


@dataclass(frozen=True)
class Comparison:
    """A system compared with the baseline, by paired bootstrap resampling."""

    metric: str
    system: str
    value: float
    mean: float
    """Mean score over the resampled test sets."""
    half_width: float
    """Half the width of the 95% confidence interval around the mean."""
    p_value: float | None
    """Probability of a difference at least this large between equally good systems; None for the baseline itself."""


def score(hypotheses: Sequence[str], references: Sequence[str], name: str = "the system") -> list[Score]:
    """Score one system in all metrics."""
    _require_equal_lengths({name: hypotheses}, references)
    results = []
    for name, metric_class in METRICS.items():
        metric = metric_class()
        value = metric.corpus_score(list(hypotheses), [list(references)]).score
        results.append(Score(name, value, str(metric.get_signature())))
    return results


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Only BLEU."""
    return float(BLEU().corpus_score(list(hypotheses), [list(references)]).score)


def compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], samples: int = 1000
) -> tuple[list[Comparison], list[str]]:
    """Compare every system with the first by paired bootstrap resampling; also returns the signatures."""
    _require_equal_lengths(systems, references)
    metrics: Any = {name: metric_class(references=[list(references)]) for name, metric_class in METRICS.items()}
    named: Any = [(name, list(lines)) for name, lines in systems.items()]
    signatures, results = PairedTest(named, metrics, references=None, test_type="bs", n_samples=samples)()
    columns: dict[str, Any] = dict(results)
    names = columns.pop("System")
    comparisons = [
        Comparison(metric, system.removeprefix("Baseline: "), r.score, float(r.mean), float(r.ci), r.p_value)
        for metric, column in columns.items()
        for system, r in zip(names, column, strict=True)
    ]
    return comparisons, [str(signature) for signature in signatures.values()]


def _require_equal_lengths(systems: Mapping[str, Sequence[str]], references: Sequence[str]) -> None:
    if not references:
        raise DataError("the reference is empty")
    for name, lines in systems.items():
        if len(lines) != len(references):
            counts = f"{name} has {len(lines):,} lines, the reference {len(references):,}"
            raise DataError(f"{counts}; they must match line by line")

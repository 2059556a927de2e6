"""BLEU, chrF and TER, computed by sacreBLEU, with the signature that makes a score comparable."""

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
    """One metric's verdict on one system."""

    metric: str
    value: float
    signature: str


@dataclass(frozen=True)
class Comparison:
    """A system against the baseline, by paired bootstrap."""

    metric: str
    system: str
    value: float
    mean: float
    """Over resampled test sets."""
    half_width: float
    """Of the 95% interval around the mean."""
    p_value: float | None
    """Chance of a difference this large or larger between equal systems; None for the baseline itself."""


def score(hypotheses: Sequence[str], references: Sequence[str], name: str = "the system") -> list[Score]:
    """All metrics for one system."""
    _require_equal_lengths({name: hypotheses}, references)
    results = []
    for name, metric_class in METRICS.items():
        metric = metric_class()
        value = metric.corpus_score(list(hypotheses), [list(references)]).score
        results.append(Score(name, value, str(metric.get_signature())))
    return results


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """BLEU alone."""
    return float(BLEU().corpus_score(list(hypotheses), [list(references)]).score)


def compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], samples: int = 1000
) -> tuple[list[Comparison], list[str]]:
    """Every system against the first, by paired bootstrap resampling; and the signatures."""
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

"""Section 3.2.1: models that are trained with each score of attention, as d_k grows."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transduce.paper.section import Chart, Claim, Results, Section, Table
from transduce.paper.training import VALIDATION_PAIRS, Corpus, Row, peak_rate, short_warmup, train_rows
from transduce.training.loop import Outcome

SCORES = ("scaled", "unscaled", "additive")
WIDTHS = (16, 64, 256)
"""Values of d_k; d_model and d_v stay those of the preset."""
_PRESET, _D_MODEL = "small", 256
_ALIKE = 0.02
"""Relative difference of perplexities up to which two scores are called similar."""


def train_scores(corpus: Corpus, steps: int, sets: Sequence[str], out: Path) -> Outcome | None:
    """Train the models that are not finished; returns the outcome of one that was stopped."""
    training = {
        "train.steps": steps,
        "train.warmup": short_warmup(steps),
        "train.learning_rate": peak_rate(_D_MODEL),
        "train.save_every": -(-steps // 2),
        "train.valid_sentences": VALIDATION_PAIRS,
        "train.average": 1,
        "train.keep": 1,
    }
    rows = []
    for width in WIDTHS:
        for score in SCORES:
            varied = {"model.attention": score, "model.d_k": width}
            rows.append(Row(_name(score, width), _PRESET, {**varied, **training}, varied))
    return train_rows("scores", rows, corpus, sets, out)


def trained_scores_section(results: Results) -> Section:
    """Perplexity and BLEU of every model that has been trained, and the paper's two statements about them."""
    trained = results.rows("scores")
    perplexity = {name: float(row["scores"]["valid_perplexity"]) for name, row in trained.items()}
    rows = [
        [str(width), score, f"{perplexity[name]:.2f}", f"{trained[name]['scores'].get('valid_bleu', 0):.1f}"]
        for width in WIDTHS
        for score in SCORES
        if (name := _name(score, width)) in trained
    ]
    lines = {
        score: [(float(width), perplexity[_name(score, width)]) for width in WIDTHS if _name(score, width) in trained]
        for score in SCORES
    }
    return Section(
        title="Section 3.2.1: models with other scores",
        measured_on=_measured_on(list(trained.values())),
        claims=list(_claims(perplexity)),
        tables=[Table("Models with d_model = 256, by d_k", ["d_k", "score", "perplexity", "BLEU"], rows)],
        charts=[Chart("Validation perplexity", "d_k", "perplexity", lines)] if rows else [],
    )


def _claims(perplexity: dict[str, float]) -> Iterator[Claim]:
    small, large = WIDTHS[0], WIDTHS[-1]
    similar = "For small d_k, additive and unscaled dot-product attention perform similarly"
    better = "For larger d_k, additive attention outperforms dot-product attention without scaling"
    scaled = "The scale 1 / sqrt(d_k) counteracts this"
    missing = "is not trained yet (--train, --valid)"
    both = [perplexity.get(_name(score, small)) for score in ("additive", "unscaled")]
    if None in both:
        yield Claim(similar, "similar", missing, "not checked")
    else:
        additive, unscaled = (value for value in both if value is not None)
        good = abs(additive / unscaled - 1) <= _ALIKE
        text = f"perplexity {additive:.2f} and {unscaled:.2f} at d_k = {small}"
        yield Claim(similar, "similar", text, "confirmed" if good else "contradicted")
    for claim, printed, score in ((better, "outperforms", "additive"), (scaled, "as good or better", "scaled")):
        own, other = (perplexity.get(_name(one, large)) for one in (score, "unscaled"))
        if own is None or other is None:
            yield Claim(claim, printed, missing, "not checked")
        else:
            text = f"perplexity {own:.2f} ({score}) against {other:.2f} (unscaled) at d_k = {large}"
            yield Claim(claim, printed, text, "confirmed" if own < other else "contradicted")


def _name(score: str, width: int) -> str:
    return f"{score}-{width}"


def _measured_on(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "no model is trained yet"
    return f"{rows[0]['steps']:,} steps per model on {rows[0]['data']['pairs']:,} pairs"

"""Table 3: variations of the base model. Parameters are counted exactly; quality needs training."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

import torch

from transduce.errors import ConfigError
from transduce.models.registry import build_config, create_model
from transduce.paper.section import Claim, Results, Section, Table, Verdict
from transduce.paper.training import EVALUATION, Corpus, TableRow, peak_rate, step_budget, train_rows
from transduce.training.loop import Outcome


class ModelVariation(NamedTuple):
    """One variation of the base model: its settings, and what the paper prints for newstest2013."""

    name: str
    settings: dict[str, object]
    """What differs from the base model."""
    changed: str
    """The same in the paper's words."""
    perplexity: float
    bleu: float
    parameters_millions: int | None
    """None if the paper prints nothing; it then has the parameters of the base model, or nearly."""


def _layers(n: int) -> dict[str, object]:
    return {"model.encoder_layers": n, "model.decoder_layers": n}


def _heads(h: int, width: int) -> dict[str, object]:
    return {"model.num_heads": h, "model.d_k": width, "model.d_v": width}


BIG: dict[str, object] = {
    "model.d_model": 1024, "model.d_ff": 4096, "model.num_heads": 16, "model.dropout": 0.3,
}  # fmt: skip
VARIATIONS = (
    ModelVariation("base", {}, "base", 4.92, 25.8, 65),
    ModelVariation("A1", _heads(1, 512), "h = 1, d_k = d_v = 512", 5.29, 24.9, None),
    ModelVariation("A2", _heads(4, 128), "h = 4, d_k = d_v = 128", 5.00, 25.5, None),
    ModelVariation("A3", _heads(16, 32), "h = 16, d_k = d_v = 32", 4.91, 25.8, None),
    ModelVariation("A4", _heads(32, 16), "h = 32, d_k = d_v = 16", 5.01, 25.4, None),
    ModelVariation("B1", {"model.d_k": 16}, "d_k = 16", 5.16, 25.1, 58),
    ModelVariation("B2", {"model.d_k": 32}, "d_k = 32", 5.01, 25.4, 60),
    ModelVariation("C1", _layers(2), "N = 2", 6.11, 23.7, 36),
    ModelVariation("C2", _layers(4), "N = 4", 5.19, 25.3, 50),
    ModelVariation("C3", _layers(8), "N = 8", 4.88, 25.5, 80),
    ModelVariation("C4", {"model.d_model": 256, **_heads(8, 32)}, "d_model = 256, d_k = d_v = 32", 5.75, 24.5, 28),
    ModelVariation("C5", {"model.d_model": 1024, **_heads(8, 128)}, "d_model = 1024, d_k = d_v = 128", 4.66, 26.0, 168),
    ModelVariation("C6", {"model.d_ff": 1024}, "d_ff = 1024", 5.12, 25.4, 53),
    ModelVariation("C7", {"model.d_ff": 4096}, "d_ff = 4096", 4.75, 26.2, 90),
    ModelVariation("D1", {"model.dropout": 0.0}, "P_drop = 0.0", 5.77, 24.6, None),
    ModelVariation("D2", {"model.dropout": 0.2}, "P_drop = 0.2", 4.95, 25.5, None),
    ModelVariation("D3", {"train.label_smoothing": 0.0}, "ε_ls = 0.0", 4.67, 25.3, None),
    ModelVariation("D4", {"train.label_smoothing": 0.2}, "ε_ls = 0.2", 5.47, 25.7, None),
    ModelVariation("E", {"model.positions": "learned"}, "learned positions", 4.92, 25.7, None),
    ModelVariation("big", BIG, "big", 4.33, 26.4, 213),
)

VOCABULARY = 40_960
"""The vocabulary with which the counts of the base model and of rows B and C are those of the paper."""
_SEEDS = (1, 2, 3)
"""Seeds of the base model, whose scores tell the noise."""
Sign = Literal["better", "worse", "same"]
_PRINTED_NOISE = {"perplexity": 0.02, "bleu": 0.1}
"""Differences that the paper prints and that may be noise; it trained every row once."""


def parameters_of(row: ModelVariation, vocab_size: int = VOCABULARY) -> int:
    """Number of parameters of a row, without allocating them."""
    model = {name.removeprefix("model."): x for name, x in row.settings.items() if name.startswith("model.")}
    config = build_config("encoder_decoder", model, row.name)
    with torch.device("meta"):
        return create_model(config, vocab_size).parameters_count


def rows_named(names: str | None) -> list[ModelVariation]:
    """The rows of a list such as "base,A1"; all without one."""
    by_name = {row.name.lower(): row for row in VARIATIONS}
    if not names:
        return list(VARIATIONS)
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name.lower() not in by_name:
            raise ConfigError(f"--rows: Table 3 has no row {name!r}; rows: {', '.join(row.name for row in VARIATIONS)}")
    return [by_name[name.lower()] for name in chosen]


def train_table3(
    rows: Sequence[ModelVariation], corpus: Corpus, steps: int, sets: Sequence[str], out: Path
) -> Outcome | None:
    """Train rows that are not finished, one after another; returns the outcome of one that was stopped."""
    runs = [_training_row(row, seed, steps) for row in rows for seed in (_SEEDS if row.name == "base" else _SEEDS[:1])]
    return train_rows("table3", runs, corpus, sets, out)


def _training_row(row: ModelVariation, seed: int, steps: int) -> TableRow:
    """The run of a row: the paper's peak learning rate, reached earlier if the run is short."""
    settings = {
        **row.settings,
        **step_budget(steps),
        "train.learning_rate": peak_rate(_width(row)),
        **EVALUATION,
        "train.seed": seed,
    }
    return TableRow(row.name if seed == 1 else f"{row.name}-{seed}", "base", settings, {*row.settings, "train.seed"})


def table3_section(results: Results) -> Section:
    """Parameter counts, and the signs of all differences that have been trained."""
    counts = {row.name: parameters_of(row) for row in VARIATIONS}
    claims = [_count_claim(row, counts[row.name]) for row in VARIATIONS if row.parameters_millions is not None]
    trained = results.rows("table3")
    base = [trained[name] for name in ("base", "base-2", "base-3") if name in trained]
    signs = [
        claim for row in VARIATIONS[1:] if row.name in trained for claim in _score_claims(row, trained[row.name], base)
    ]
    signs += _missing_claim([row.name for row in VARIATIONS if row.name not in trained])
    decided = [claim for claim in signs if claim.verdict in ("confirmed", "contradicted")]
    agree = sum(claim.verdict == "confirmed" for claim in decided)
    rows = []
    for row in VARIATIONS:
        scores = trained.get(row.name)
        printed = "" if row.parameters_millions is None else str(row.parameters_millions)
        figures = [f"{row.perplexity:.2f}", f"{row.bleu:.1f}"]
        figures += [f"{_score(scores, 'perplexity'):.2f}", f"{_score(scores, 'bleu'):.1f}"] if scores else ["", ""]
        rows.append([row.name, row.changed, printed, f"{counts[row.name] / 1e6:.2f}", *figures])
    head = ["row", "changed", "paper, 10⁶ parameters", "ours", "paper, perplexity", "paper, BLEU", "perplexity", "BLEU"]
    return Section(
        title="Table 3: variations of the base model",
        measured_on=_measured_on(base),
        claims=claims + signs,
        tables=[Table("All rows", head, rows)],
        notes=[
            f"Parameters are counted with a vocabulary of {VOCABULARY:,} tokens, which the paper does not state: it is "
            "the one with which all its counts of models of its base family agree. Layers have biases.",
            "Perplexity and BLEU of a short training on another corpus are not comparable with the paper's as numbers; "
            "the sign of a difference from the base model is. A difference counts beyond two standard deviations of "
            "the base model's seeds. Short training favours small models and little regularization.",
            *([f"{agree} of {len(decided)} differences that are decided have the paper's sign."] if decided else []),
        ],
    )


def _count_claim(row: ModelVariation, count: int) -> Claim:
    assert row.parameters_millions is not None
    ours, agrees = f"{count:,} with V = {VOCABULARY:,}", round(count / 1e6) == row.parameters_millions
    if not agrees:
        fitting = VOCABULARY - (count - row.parameters_millions * 1e6) / _width(row)
        ours = f"{ours}; {row.parameters_millions} million need V = {fitting:,.0f}"
    claim, paper = f"Row {row.name}, number of parameters", f"{row.parameters_millions} million"
    return Claim.checked(claim, paper, ours, agrees)


def _width(row: ModelVariation) -> int:
    width = row.settings.get("model.d_model", 512)
    assert isinstance(width, int)
    return width


def _score(trained: dict[str, Any], name: str) -> float:
    return float(trained["scores"].get(f"valid_{name}", math.nan))


def _missing_claim(names: list[str]) -> list[Claim]:
    if not names:
        return []
    claim = f"Perplexity and BLEU of {'row' if len(names) == 1 else 'rows'} {', '.join(names)}"
    return [Claim(claim, "see the table", "not trained yet (--train, --valid)", "not checked")]


def _score_claims(row: ModelVariation, trained: dict[str, Any], base: list[dict[str, Any]]) -> list[Claim]:
    """Whether perplexity and BLEU of a row differ from the base model as in the paper."""
    claims = []
    metrics = (("perplexity", "perplexity", row.perplexity, True), ("bleu", "BLEU", row.bleu, False))
    for name, label, printed, lower in metrics:
        difference = printed - (VARIATIONS[0].perplexity if lower else VARIATIONS[0].bleu)
        paper = _sign(difference, _PRINTED_NOISE[name], lower)
        text = f"{paper} ({difference:+.2f})"
        claim = f"Row {row.name}, {row.changed}: {label}"
        if len(base) < 2:
            claims.append(Claim(claim, text, "needs the base model with several seeds", "not checked"))
            continue
        values = [_score(run, name) for run in base]
        ours, noise = _score(trained, name) - fmean(values), 2 * stdev(values) * math.sqrt(1 + 1 / len(values))
        found = _sign(ours, noise, lower)
        claims.append(Claim(claim, text, f"{found} ({ours:+.2f}, noise {noise:.2f})", verdict_of(paper, found)))
    return claims


def _sign(difference: float, noise: float, lower_is_better: bool) -> Sign:
    if abs(difference) <= noise + 1e-9:
        return "same"
    return "better" if (difference < 0) == lower_is_better else "worse"


def verdict_of(paper: Sign, ours: Sign) -> Verdict:
    """Whether the sign of a difference is the paper's."""
    if paper == ours:
        return "confirmed"
    return "within noise" if ours == "same" else "contradicted"


def _measured_on(base: list[dict[str, Any]]) -> str:
    if not base:
        return "parameters counted; no row is trained yet"
    first = base[0]
    return (
        f"{first['steps']:,} steps per row on {first['data']['pairs']:,} pairs, vocabulary {first['vocab_size']:,}; "
        f"base model with {len(base)} seeds"
    )

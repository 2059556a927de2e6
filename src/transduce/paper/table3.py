"""Table 3: variations of the base model. Parameters are counted exactly; quality needs training."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

import torch

from transduce.errors import ConfigError
from transduce.models.registry import build_config, create_model
from transduce.paper.printed import TABLE3, Table3Row
from transduce.paper.section import Claim, Results, Section, Table, Verdict
from transduce.paper.training import VALIDATION_PAIRS, Corpus, Row, peak_rate, short_warmup, train_rows
from transduce.training.loop import Outcome

VOCABULARY = 40_960
"""The vocabulary with which the counts of the base model and of rows B and C are those of the paper."""
_SEEDS = (1, 2, 3)
"""Seeds of the base model, whose scores tell the noise."""
Sign = Literal["better", "worse", "same"]
_PRINTED_NOISE = {"perplexity": 0.02, "bleu": 0.1}
"""Differences that the paper prints and that may be noise; it trained every row once."""


def parameters_of(row: Table3Row, vocab_size: int = VOCABULARY) -> int:
    """Number of parameters of a row, without allocating them."""
    model = {name.removeprefix("model."): x for name, x in row.settings.items() if name.startswith("model.")}
    config = build_config("encoder_decoder", model, row.name)
    with torch.device("meta"):
        return create_model(config, vocab_size).parameters_count


def rows_named(names: str | None) -> list[Table3Row]:
    """The rows of a list such as "base,A1"; all without one."""
    by_name = {row.name.lower(): row for row in TABLE3}
    if not names:
        return list(TABLE3)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name.lower() not in by_name:
            raise ConfigError(f"--rows: Table 3 has no row {name!r}; rows: {', '.join(row.name for row in TABLE3)}")
    return [by_name[name.lower()] for name in wanted]


def train_table3(
    rows: Sequence[Table3Row], corpus: Corpus, steps: int, sets: Sequence[str], out: Path
) -> Outcome | None:
    """Train rows that are not finished, one after another; returns the outcome of one that was stopped."""
    runs = [_training_row(row, seed, steps) for row in rows for seed in (_SEEDS if row.name == "base" else _SEEDS[:1])]
    return train_rows("table3", runs, corpus, sets, out)


def _training_row(row: Table3Row, seed: int, steps: int) -> Row:
    """The run of a row: the paper's peak learning rate, reached earlier if the run is short."""
    settings = {
        **row.settings,
        "train.steps": steps,
        "train.warmup": short_warmup(steps),
        "train.learning_rate": peak_rate(_width(row)),
        "train.save_every": -(-steps // 2),
        "train.valid_sentences": VALIDATION_PAIRS,
        "train.average": 1,  # Table 3 is without averaging
        "train.keep": 1,
        "train.seed": seed,
    }
    return Row(row.name if seed == 1 else f"{row.name}-{seed}", "base", settings, {*row.settings, "train.seed"})


def table3_section(results: Results) -> Section:
    """Parameter counts, and the signs of all differences that have been trained."""
    counts = {row.name: parameters_of(row) for row in TABLE3}
    claims = [_count_claim(row, counts[row.name]) for row in TABLE3 if row.parameters_millions is not None]
    trained = results.rows("table3")
    base = [trained[name] for name in ("base", "base-2", "base-3") if name in trained]
    signs = [
        claim for row in TABLE3[1:] if row.name in trained for claim in _score_claims(row, trained[row.name], base)
    ]
    signs += _missing_claim([row.name for row in TABLE3 if row.name not in trained])
    decided = [claim for claim in signs if claim.verdict in ("confirmed", "contradicted")]
    agree = sum(claim.verdict == "confirmed" for claim in decided)
    rows = []
    for row in TABLE3:
        own = trained.get(row.name)
        printed = "" if row.parameters_millions is None else str(row.parameters_millions)
        figures = [f"{row.perplexity:.2f}", f"{row.bleu:.1f}"]
        figures += [f"{_score(own, 'perplexity'):.2f}", f"{_score(own, 'bleu'):.1f}"] if own else ["", ""]
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


def _count_claim(row: Table3Row, count: int) -> Claim:
    assert row.parameters_millions is not None
    ours, agrees = f"{count:,} with V = {VOCABULARY:,}", round(count / 1e6) == row.parameters_millions
    if not agrees:
        fitting = VOCABULARY - (count - row.parameters_millions * 1e6) / _width(row)
        ours = f"{ours}; {row.parameters_millions} million need V = {fitting:,.0f}"
    claim, paper = f"Row {row.name}, number of parameters", f"{row.parameters_millions} million"
    return Claim(claim, paper, ours, "confirmed" if agrees else "contradicted")


def _width(row: Table3Row) -> int:
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


def _score_claims(row: Table3Row, own: dict[str, Any], base: list[dict[str, Any]]) -> list[Claim]:
    """Whether perplexity and BLEU of a row differ from the base model as in the paper."""
    claims = []
    metrics = (("perplexity", "perplexity", row.perplexity, True), ("bleu", "BLEU", row.bleu, False))
    for name, label, printed, lower in metrics:
        difference = printed - (TABLE3[0].perplexity if lower else TABLE3[0].bleu)
        paper = _sign(difference, _PRINTED_NOISE[name], lower)
        text = f"{paper} ({difference:+.2f})"
        claim = f"Row {row.name}, {row.changed}: {label}"
        if len(base) < 2:
            claims.append(Claim(claim, text, "needs the base model with several seeds", "not checked"))
            continue
        values = [_score(one, name) for one in base]
        ours, noise = _score(own, name) - fmean(values), 2 * stdev(values) * math.sqrt(1 + 1 / len(values))
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

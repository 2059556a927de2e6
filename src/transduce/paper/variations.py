"""Models that are trained to be compared: Table 3, and section 3.2.1 with other scores of attention.

Each is an ordinary run in a folder, which can be stopped and continued.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

import torch

from transduce.errors import ConfigError
from transduce.models.folder import find_model, read_card
from transduce.models.registry import build_config, create_model
from transduce.paper.section import PRINTED, Chart, Claim, Results, Section, Table, Verdict
from transduce.training.api import train
from transduce.training.loop import Outcome

_PAPER_WARMUP = 4000
_NOT_TRAINED = "not trained yet (--train, --valid)"
EVALUATION = {"train.valid_sentences": 3003, "train.average": 1, "train.keep": 1}
"""Settings of all rows: validation on as many pairs as a newstest has, and no averaging of checkpoints."""


def peak_rate(d_model: int) -> float:
    """The paper's highest learning rate for a width, at the end of its warmup."""
    return float(f"{(d_model * _PAPER_WARMUP) ** -0.5:.6g}")


def step_budget(steps: int) -> dict[str, Any]:
    """Settings of a run of this number of steps; the warmup is the paper's, or a quarter of a short run."""
    warmup = min(_PAPER_WARMUP, max(1, steps // 4))
    return {"train.steps": steps, "train.warmup": warmup, "train.save_every": -(-steps // 2)}


def training_settings(d_model: int, steps: int) -> dict[str, Any]:
    """The paper's peak learning rate, reached earlier if the run is short."""
    return {**step_budget(steps), "train.learning_rate": peak_rate(d_model), **EVALUATION}


@dataclass(frozen=True)
class Corpus:
    """The text of all rows."""

    train: Sequence[Path]
    valid: Sequence[Path]


@dataclass(frozen=True)
class TableRow:
    """A model to train."""

    name: str
    preset: str
    settings: Mapping[str, Any]
    varied: Collection[str] = ()
    """The settings that rows differ in, which may not be changed for all of them."""


def train_rows(table: str, rows: Sequence[TableRow], corpus: Corpus, sets: Sequence[str], out: Path) -> Outcome | None:
    """Train rows that are not finished, one after another; returns the outcome of one that was stopped."""
    for assignment in sets:
        name = assignment.partition("=")[0].strip()
        if name == "train.steps":
            raise ConfigError(f"--set {assignment}: give --steps instead")
        for row in rows:
            if name in row.varied:
                raise ConfigError(f"--set {assignment}: {name} is what {row.name} differs in from other rows")
    for row in rows:
        outcome = _train_row(table, row, corpus, sets, out)
        if outcome and not outcome.finished:
            return outcome
    return None


def _train_row(table: str, row: TableRow, corpus: Corpus, sets: Sequence[str], out: Path) -> Outcome | None:
    """Train a row, or continue its run, and keep its scores in the results.

    Returns None if the row is finished already. A row that was finished with other settings is refused.
    """
    results = Results(out)
    settings = {"preset": row.preset, **row.settings, **dict(assignment.partition("=")[::2] for assignment in sets)}
    settings = {name: str(value) for name, value in settings.items()}
    if finished := results.rows(table).get(row.name):
        before = finished["settings"]
        if before != settings:
            changed = next(name for name in sorted({*before, *settings}) if before.get(name) != settings.get(name))
            raise ConfigError(
                f"{out}: row {row.name} was trained with {changed}={before.get(changed)}, not "
                f"{settings.get(changed)}; give the same settings, or another --out"
            )
        return None
    run = out / table / row.name
    outcome = train(
        run,
        train=list(corpus.train),
        valid=list(corpus.valid),
        preset=row.preset,
        settings=dict(row.settings),
        sets=sets,
    )
    if outcome.finished:
        card = read_card(find_model(run))
        facts = {name: card["facts"][name] for name in ("steps", "seconds", "scores", "data")}
        facts["target_tokens_seen"] = tokens_seen(run / "metrics.jsonl", facts["seconds"])
        facts |= {"settings": settings, "vocab_size": card["vocab_size"], "architecture": card["architecture"]}
        results.add_row(table, row.name, {**facts, "model": card["model"]})
    return outcome


def tokens_seen(metrics: Path, seconds: float) -> float:
    """Number of target tokens that a run was trained on, from its training time and its measured throughput."""
    lines = metrics.read_text(encoding="utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if record["kind"] == "train"]
    # Steps have about the same number of tokens, so an interval between records takes steps / throughput.
    before = [0, *(record["step"] for record in records[:-1])]
    share = sum(
        (record["step"] - step) / record["tokens_per_second"] for record, step in zip(records, before, strict=True)
    )
    return seconds / share * float(records[-1]["step"])


# Table 3: variations of the base model

_SEEDS = (1, 2, 3)
"""Seeds of the base model, whose scores tell the noise."""
Sign = Literal["better", "worse", "same"]
_PRINTED_NOISE = {"perplexity": 0.02, "bleu": 0.1}
"""Differences that the paper prints and that may be noise; it trained every row once."""


class ModelVariation(NamedTuple):
    """A row of Table 3: a variation of the base model, and what the paper prints for newstest2013."""

    name: str
    changed: str
    """What differs from the base model, in the paper's words."""
    settings: dict[str, Any]
    """The same as settings of a recipe."""
    perplexity: float
    bleu: float
    millions: int | None = None
    """Millions of parameters, if the paper prints them."""

    @property
    def d_model(self) -> int:
        return int(self.settings.get("model.d_model", 512))

    @property
    def model(self) -> dict[str, Any]:
        """The section [model] of a recipe."""
        return {name.removeprefix("model."): x for name, x in self.settings.items() if name.startswith("model.")}


VARIATIONS = [ModelVariation(**row) for row in PRINTED["table3"]["rows"]]
VOCABULARY = int(PRINTED["table3"]["vocabulary"])


def parameters_of(row: ModelVariation, vocab_size: int = VOCABULARY) -> int:
    """Number of parameters of a row, without allocating them."""
    config = build_config("encoder_decoder", row.model, row.name)
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
    runs = []
    for row in rows:
        for seed in _SEEDS if row.name == "base" else _SEEDS[:1]:
            settings = row.settings | training_settings(row.d_model, steps) | {"train.seed": seed}
            name = row.name if seed == 1 else f"{row.name}-{seed}"
            runs.append(TableRow(name, "base", settings, {*row.settings, "train.seed"}))
    return train_rows("table3", runs, corpus, sets, out)


def table3_section(results: Results) -> Section:
    """Parameter counts, and the signs of all differences that have been trained."""
    counts = {row.name: parameters_of(row) for row in VARIATIONS}
    claims = [_count_claim(row, counts[row.name]) for row in VARIATIONS if row.millions is not None]
    trained = results.rows("table3")
    base = [trained[name] for name in ("base", "base-2", "base-3") if name in trained]
    signs = [
        claim for row in VARIATIONS[1:] if row.name in trained for claim in _score_claims(row, trained[row.name], base)
    ]
    if missing := [row.name for row in VARIATIONS if row.name not in trained]:
        claim = f"Perplexity and BLEU of {'row' if len(missing) == 1 else 'rows'} {', '.join(missing)}"
        signs.append(Claim(claim, "see the table", _NOT_TRAINED, "not checked"))
    decided = [claim for claim in signs if claim.verdict in ("confirmed", "contradicted")]
    agree = sum(claim.verdict == "confirmed" for claim in decided)
    measured_on = "parameters counted; no row is trained yet"
    if base:
        vocabulary, seeds = base[0]["vocab_size"], len(base)
        measured_on = f"{_trained_on(base[0], 'row')}, vocabulary {vocabulary:,}; base model with {seeds} seeds"
    rows = []
    for row in VARIATIONS:
        scores = trained.get(row.name)
        printed = "" if row.millions is None else str(row.millions)
        figures = [f"{row.perplexity:.2f}", f"{row.bleu:.1f}"]
        figures += [f"{_score(scores, 'perplexity'):.2f}", f"{_score(scores, 'bleu'):.1f}"] if scores else ["", ""]
        rows.append([row.name, row.changed, printed, f"{counts[row.name] / 1e6:.2f}", *figures])
    head = ["row", "changed", "paper, 10⁶ parameters", "ours", "paper, perplexity", "paper, BLEU", "perplexity", "BLEU"]
    agreement = f"{agree} of {len(decided)} differences that are decided have the paper's sign."
    return Section.printed(
        "table3",
        measured_on=measured_on,
        claims=claims + signs,
        tables=[Table("All rows", head, rows)],
        notes=[agreement] if decided else [],
    )


def _count_claim(row: ModelVariation, count: int) -> Claim:
    assert row.millions is not None
    ours, agrees = f"{count:,} with V = {VOCABULARY:,}", round(count / 1e6) == row.millions
    if not agrees:
        fitting = VOCABULARY - (count - row.millions * 1e6) / row.d_model
        ours = f"{ours}; {row.millions} million need V = {fitting:,.0f}"
    claim, paper = f"Row {row.name}, number of parameters", f"{row.millions} million"
    return Claim.checked(claim, paper, ours, agrees)


def _score(trained: dict[str, Any], name: str) -> float:
    return float(trained["scores"].get(f"valid_{name}", math.nan))


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


# Section 3.2.1: models with other scores

_TRAINED_SCORES = ("scaled", "unscaled", "additive")
TRAINED_WIDTHS = (16, 64, 256)
"""Values of d_k; d_model and d_v stay those of the preset."""
_PRESET, _D_MODEL = "small", 256
_SIMILAR = 0.02
"""Relative difference of perplexities up to which two scores are called similar."""


def train_scores(corpus: Corpus, steps: int, sets: Sequence[str], out: Path) -> Outcome | None:
    """Train the models that are not finished; returns the outcome of one that was stopped."""
    rows = []
    for width, score in product(TRAINED_WIDTHS, _TRAINED_SCORES):
        varied = {"model.attention": score, "model.d_k": width}
        rows.append(TableRow(f"{score}-{width}", _PRESET, varied | training_settings(_D_MODEL, steps), varied))
    return train_rows("scores", rows, corpus, sets, out)


def trained_scores_section(results: Results) -> Section:
    """Perplexity and BLEU of every model that has been trained, and the paper's two statements about them."""
    trained = results.rows("scores")
    perplexity = {name: float(row["scores"]["valid_perplexity"]) for name, row in trained.items()}
    rows = [
        [str(width), score, f"{perplexity[name]:.2f}", f"{trained[name]['scores'].get('valid_bleu', 0):.1f}"]
        for width in TRAINED_WIDTHS
        for score in _TRAINED_SCORES
        if (name := f"{score}-{width}") in trained
    ]
    lines = {
        score: [
            (float(width), perplexity[f"{score}-{width}"]) for width in TRAINED_WIDTHS if f"{score}-{width}" in trained
        ]
        for score in _TRAINED_SCORES
    }
    first = next(iter(trained.values()), None)
    return Section.printed(
        "trained_scores",
        measured_on=_trained_on(first, "model") if first else "no model is trained yet",
        claims=list(_trained_claims(perplexity)),
        tables=[Table("Models with d_model = 256, by d_k", ["d_k", "score", "perplexity", "BLEU"], rows)],
        charts=[Chart("Validation perplexity", "d_k", "perplexity", lines)] if rows else [],
    )


def _trained_on(row: dict[str, Any], noun: str) -> str:
    return f"{row['steps']:,} steps per {noun} on {row['data']['pairs']:,} pairs"


def _trained_claims(perplexity: dict[str, float]) -> Iterator[Claim]:
    small, large = TRAINED_WIDTHS[0], TRAINED_WIDTHS[-1]
    missing = f"is {_NOT_TRAINED}"
    similar = "For small d_k, additive and unscaled dot-product attention perform similarly"
    additive, unscaled = (perplexity.get(f"{score}-{small}") for score in ("additive", "unscaled"))
    if additive is None or unscaled is None:
        yield Claim(similar, "similar", missing, "not checked")
    else:
        text = f"perplexity {additive:.2f} and {unscaled:.2f} at d_k = {small}"
        yield Claim.checked(similar, "similar", text, abs(additive / unscaled - 1) <= _SIMILAR)
    better = "For larger d_k, additive attention outperforms dot-product attention without scaling"
    scaled = "The scale 1 / sqrt(d_k) counteracts this"
    unscaled = perplexity.get(f"unscaled-{large}")
    for claim, printed, score in ((better, "outperforms", "additive"), (scaled, "as good or better", "scaled")):
        ours = perplexity.get(f"{score}-{large}")
        if ours is None or unscaled is None:
            yield Claim(claim, printed, missing, "not checked")
        else:
            text = f"perplexity {ours:.2f} ({score}) against {unscaled:.2f} (unscaled) at d_k = {large}"
            yield Claim.checked(claim, printed, text, ours < unscaled)

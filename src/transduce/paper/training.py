"""Training the models of a table: ordinary runs in folders, each of which can be stopped and continued."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import ConfigError
from transduce.models.folder import find_model, read_card
from transduce.paper.section import Results
from transduce.training.api import train
from transduce.training.loop import Outcome

_PAPER_WARMUP = 4000
EVALUATION = {"train.valid_sentences": 3003, "train.average": 1, "train.keep": 1}
"""Settings of all rows: validation on as many pairs as a newstest has, and no averaging of checkpoints."""


def peak_rate(d_model: int) -> float:
    """The paper's highest learning rate for a width, at the end of its warmup."""
    return float(f"{(d_model * _PAPER_WARMUP) ** -0.5:.6g}")


def step_budget(steps: int) -> dict[str, Any]:
    """Settings of a run of this number of steps; the warmup is the paper's, or a quarter of a short run."""
    warmup = min(_PAPER_WARMUP, max(1, steps // 4))
    return {"train.steps": steps, "train.warmup": warmup, "train.save_every": -(-steps // 2)}


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

"""The Transformer against other models: Table 2, quality and training cost, and Table 4, constituency parsing."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

from transduce.config import suggestion
from transduce.data.batch import Batch
from transduce.errors import ConfigError
from transduce.models.registry import build_config, create_model
from transduce.nn.loss import smoothed_cross_entropy
from transduce.paper.measured import count_flops
from transduce.paper.section import PRINTED, Claim, Results, Section, Table
from transduce.paper.variations import EVALUATION, VARIATIONS, Corpus, TableRow, peak_rate, step_budget, train_rows
from transduce.tokenizers.tokenizer import BOS
from transduce.training.loop import Outcome

# Table 2

MODELS: dict[str, dict[str, Any]] = PRINTED["table2"]["models"]
_DEFAULT = ("base", "recurrent", "convolutional")

_PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "P100": 9.5e12, "V100": 125e12}
"""Peak of matrix products without sparsity (bfloat16 or float16; P100: float32, as the paper's 9.5), by GPU."""
_PAPER_VOCABULARY, _PAPER_BATCH, _PAPER_LENGTH = 37_000, 25_000, 26
"""Tokens of the vocabulary, of a batch on each side, and of a sentence with its marker (about the mean of WMT 2014)."""
_SAVE_EVERY = 1000


_COLUMNS = ("BLEU En-De", "BLEU En-Fr", "FLOPs En-De", "FLOPs En-Fr")


def peak_flops() -> float | None:
    """The peak speed of this machine's GPU, if it is known."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return next((speed for key, speed in _PEAK_FLOPS.items() if key in name), None)


def models_named(names: str | None) -> list[str]:
    """The models of a list such as "base,recurrent"."""
    chosen = [name.strip() for name in names.split(",") if name.strip()] if names else list(_DEFAULT)
    for name in chosen:
        if name not in MODELS:
            raise ConfigError(f"--models: no model {name!r}{suggestion(name, list(MODELS))}; use {', '.join(MODELS)}")
    return chosen


def train_table2(
    models: Sequence[str],
    corpus: Corpus,
    pair: str,
    *,
    minutes: float | None,
    steps: int | None,
    sets: Sequence[str],
    out: Path,
) -> Outcome | None:
    """Train models with equal minutes, with equal steps (thus tokens), or both; returns one that was stopped."""
    budgets: list[tuple[str, dict[str, Any]]] = []
    if minutes is not None:
        budgets.append((f"{minutes:g}-minutes", {"train.minutes": minutes, "train.save_every": _SAVE_EVERY}))
    if steps is not None:
        budgets.append((f"{steps}-steps", step_budget(steps)))
    rows = []
    for (budget, limit), model in product(budgets, models):
        row = MODELS[model]
        schedule = {"train.learning_rate": peak_rate(row["d_model"]), "train.warmup": row["warmup"]}
        settings = {**row["settings"], **schedule, **limit, **EVALUATION}
        name = f"{pair}-{budget}-{model}"
        rows.append(TableRow(name, row["preset"], settings, {"model.architecture", "train.minutes"}))
    return train_rows("table2", rows, corpus, sets, out)


def training_flops(architecture: str, model: dict[str, Any], vocab_size: int, src: float, tgt: float) -> float:
    """Counted FLOPs of forward and backward pass for one pair with these numbers of tokens, markers included."""
    return _counted_flops(architecture, json.dumps(model), vocab_size, max(1, round(src)), max(1, round(tgt)))


@cache
def _counted_flops(architecture: str, model: str, vocab_size: int, src: int, tgt: int) -> float:
    """The FLOPs for one pair; `model` is the JSON of its settings, as rows of the same model are counted once."""
    device = torch.device("meta")
    with device:
        network = create_model(build_config(architecture, json.loads(model), "model"), vocab_size)
    batch = Batch.of(device, src=[[BOS] * src], tgt=[[BOS] * tgt])
    labels_L = torch.full((tgt,), BOS, device=device)

    def step() -> None:
        loss, _ = smoothed_cross_entropy(network(batch), labels_L, network.output_weight_VD, 0.1)
        loss.backward()

    return count_flops(step)


def table2_section(results: Results, peak: float | None) -> Section:
    """The paper's columns, what its costs are, and every model that has been trained."""
    trained = results.rows("table2")
    (big,) = (row.model for row in VARIATIONS if row.name == "big")
    head = ["run", "BLEU", "perplexity", "minutes", "steps", "pairs seen", "counted FLOPs", "time × peak"]
    printed = [[row[0], *(f"{x:g}" if x else "" for x in row[1:])] for row in PRINTED["table2"]["rows"]]
    return Section.printed(
        "table2",
        measured_on=f"{len(trained)} trained models" if trained else "no model is trained yet",
        claims=[
            *_cost_claims("Transformer base", 0.5, 100_000, {}),
            *_cost_claims("Transformer big", 3.5, 300_000, big),
            *_quality_claims(trained),
        ],
        tables=[
            Table("Trained here", head, [_trained_row(name, row, peak) for name, row in trained.items()]),
            Table("The paper's table", ["model", *_COLUMNS], printed),
        ],
    )


def _printed(model: str) -> dict[str, Any]:
    (row,) = (row for row in PRINTED["table2"]["rows"] if row[0] == model)
    return dict(zip(_COLUMNS, row[1:], strict=True))


def _cost_claims(name: str, days: float, steps: int, model: dict[str, Any]) -> Iterator[Claim]:
    """Section 6.1: the cost is training time times the number of GPUs times an estimate of their sustained speed."""
    printed = _printed(name)["FLOPs En-De"]
    cost = 8 * days * 86400 * _PEAK_FLOPS["P100"]
    yield Claim.checked(
        f"{name}: training cost",
        f"{printed:.1e} FLOPs",
        f"8 GPUs × {days:g} days × 9.5 TFLOP/s = {cost:.2e}",
        abs(cost / printed - 1) < 0.05,
    )
    pair = training_flops("encoder_decoder", model, _PAPER_VOCABULARY, _PAPER_LENGTH, _PAPER_LENGTH)
    counted = pair * steps * _PAPER_BATCH / _PAPER_LENGTH
    speed = counted / (8 * days * 86400)
    yield Claim.checked(
        f"{name}: the speed that a P100 sustains",
        "9.5 TFLOP/s",
        f"{speed / 1e12:.1f} TFLOP/s: the products of {steps:,} steps are {counted:.1e} FLOPs, "
        f"{counted / printed:.0%} of the printed cost; 9.5 is the peak",
        abs(speed / _PEAK_FLOPS["P100"] - 1) < 0.2,
    )


def _trained_row(name: str, row: dict[str, Any], peak: float | None) -> list[str]:
    data, scores = row["data"], row["scores"]
    src, tgt = (data[f"{side}_tokens"] / data["pairs"] + 1 for side in ("source", "target"))
    pairs = row["target_tokens_seen"] / tgt
    flops = pairs * training_flops(row["architecture"], row["model"], row["vocab_size"], src, tgt)
    return [
        name,
        f"{scores['valid_bleu']:.2f}" if "valid_bleu" in scores else "",
        f"{scores['valid_perplexity']:.2f}" if "valid_perplexity" in scores else "",
        f"{row['seconds'] / 60:.1f}",
        f"{row['steps']:,}",
        f"{pairs:,.0f}",
        f"{flops:.2e}",
        "" if peak is None else f"{row['seconds'] * peak:.2e}",
    ]


def _quality_claims(trained: dict[str, Any]) -> Iterator[Claim]:
    """Whether the Transformer is better than each predecessor, for each corpus and budget."""
    starts = [name.removesuffix("base") for name in trained if name.endswith("-base")]
    for model, other in (("recurrent", "GNMT + RL"), ("convolutional", "ConvS2S")):
        bleu, base = (_printed(name)["BLEU En-De"] for name in (other, "Transformer base"))
        paper = f"{base} against {bleu} ({other}, En-De)"
        claim = f"Transformer base is better than {MODELS[model]['label']}"
        both = [start for start in starts if start + model in trained]
        for start in both:
            ours, theirs = (trained[start + name]["scores"].get("valid_bleu") for name in ("base", model))
            if ours is None or theirs is None:
                yield Claim(f"{claim}, {start.strip('-')}", paper, "the runs have no BLEU", "not checked")
            else:
                found = f"BLEU {ours:.2f} against {theirs:.2f}"
                yield Claim.checked(f"{claim}, {start.strip('-')}", paper, found, ours > theirs)
        if not both:
            yield Claim(claim, paper, "is not trained yet", "not checked")


# Table 4


def table4_section(results: Results) -> Section:
    """The paper's figures, and every parser that has been scored. The Wall Street Journal cannot be had freely."""
    scored = list(results.rows("table4").values())
    rows = [
        [row["model"], row["architecture"], row["test"], *(f"{row[key]:.2f}" for key in ("f1", "precision", "recall"))]
        for row in scored
    ]
    head, paper = ["model", "architecture", "test set", "F1", "P", "R"], "91.3 F1 (WSJ only), 92.7 (semi-supervised)"
    printed = [[*map(str, row)] for row in PRINTED["table4"]["rows"]]
    return Section.printed(
        "table4",
        measured_on=f"{len(rows)} scores of parsers that were trained here" if rows else "no parser is scored yet",
        claims=[
            Claim("The Transformer generalizes to constituency parsing", paper, _best(scored), "not checked"),
            *_predecessor_claims(scored),
        ],
        tables=[
            *([Table("Trained here", head, rows)] if rows else []),
            Table("The paper's table", ["parser", "training", "F1 on WSJ 23"], printed),
        ],
    )


def _best(scored: list[dict[str, Any]]) -> str:
    """The best score on every test set."""
    best = {row["test"]: row["f1"] for row in sorted(scored, key=lambda row: row["f1"])}
    if not best:
        return "no parser is scored yet (--model, --test)"
    return ", ".join(f"{f1:.1f} on {test}" for test, f1 in best.items()) + "; WSJ cannot be had freely"


def _predecessor_claims(scored: list[dict[str, Any]]) -> Iterator[Claim]:
    """Whether the Transformer is better than the recurrent model, on every test set on which both were scored."""
    claim = "The Transformer outperforms recurrent sequence-to-sequence models"
    paper = "91.3 against 88.3 F1 (WSJ only)"
    compared = False
    for test in dict.fromkeys(row["test"] for row in scored):
        ours, theirs = (
            [row["f1"] for row in scored if row["test"] == test and row["architecture"] == architecture]
            for architecture in ("encoder_decoder", "recurrent")
        )
        if ours and theirs:
            compared = True
            found = f"{max(ours):.1f} against {max(theirs):.1f}"
            yield Claim.checked(f"{claim}: {test}", paper, found, max(ours) > max(theirs))
    if not compared:
        yield Claim(claim, paper, "needs a score of a recurrent parser on the same test set", "not checked")

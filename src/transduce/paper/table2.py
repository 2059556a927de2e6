"""Table 2: quality against training cost, for the Transformer and its predecessors."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

from transduce.config import suggestion
from transduce.data.batch import Batch
from transduce.errors import ConfigError
from transduce.models.registry import build_config, create_model
from transduce.nn.loss import smoothed_cross_entropy
from transduce.paper.counting import count_flops
from transduce.paper.section import Claim, Results, Section, Table
from transduce.paper.table3 import BIG
from transduce.paper.training import EVALUATION, Corpus, TableRow, peak_rate, step_budget, train_rows
from transduce.tokenizers.tokenizer import BOS
from transduce.training.loop import Outcome


class PrintedRow(NamedTuple):
    """BLEU on newstest2014 and training cost in FLOPs; None if the paper prints nothing."""

    model: str
    bleu_en_de: float | None
    bleu_en_fr: float | None
    flops_en_de: float | None
    flops_en_fr: float | None


PRINTED = (
    PrintedRow("ByteNet", 23.75, None, None, None),
    PrintedRow("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    PrintedRow("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    PrintedRow("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    PrintedRow("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    PrintedRow("Deep-Att + PosUnk ensemble", None, 40.4, None, 8.0e20),
    PrintedRow("GNMT + RL ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    PrintedRow("ConvS2S ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    PrintedRow("Transformer base", 27.3, 38.1, 3.3e18, 3.3e18),
    PrintedRow("Transformer big", 28.4, 41.8, 2.3e19, 2.3e19),
)

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "base": ("Transformer base", "base", {}),
    "recurrent": (
        "GRU with attention",
        "base",
        {
            "model.architecture": "recurrent", "model.d_model": 1024, "model.encoder_layers": 2,
            "model.decoder_layers": 2, "train.clip_norm": 1.0,
        },
    ),
    "convolutional": (
        "ConvS2S",
        "base",
        {"model.architecture": "convolutional", "model.encoder_layers": 12, "model.decoder_layers": 12},
    ),
    "big": ("Transformer big", "big", {}),
}  # fmt: skip
"""Name, preset and settings; all but big have about 65 million parameters."""
_DEFAULT = ("base", "recurrent", "convolutional")

_PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "P100": 9.5e12, "V100": 125e12}
"""Peak of matrix products without sparsity (bfloat16 or float16; P100: float32, as the paper's 9.5), by GPU."""
_PAPER_VOCABULARY, _PAPER_BATCH, _PAPER_LENGTH = 37_000, 25_000, 26
"""Tokens of the vocabulary, of a batch on each side, and of a sentence with its marker (about the mean of WMT 2014)."""
_SAVE_EVERY = 1000
_WARMUP = {"base": 1000, "big": 1000, "recurrent": 100, "convolutional": 100}
"""Of runs whose number of steps is not known before. Only the Transformer, which normalizes after each residual
connection, needs a long warmup; of a short run of a slow model it would be the largest part."""


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
        _, preset, settings = MODELS[model]
        width = settings.get("model.d_model", 1024 if model == "big" else 512)
        schedule = {"train.learning_rate": peak_rate(width), "train.warmup": _WARMUP[model]}
        all_settings = {**settings, **schedule, **limit, **EVALUATION}
        rows.append(TableRow(f"{pair}-{budget}-{model}", preset, all_settings, {"model.architecture", "train.minutes"}))
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
    big = {name.removeprefix("model."): value for name, value in BIG.items()}
    claims = [
        *_cost_claims("Transformer base", 0.5, 100_000, {}),
        *_cost_claims("Transformer big", 3.5, 300_000, big),
        *_quality_claims(trained),
    ]
    return Section(
        title="Table 2: quality and training cost",
        measured_on=f"{len(trained)} trained models" if trained else "no model is trained yet",
        claims=claims,
        tables=[
            Table(
                "Trained here",
                ["run", "BLEU", "perplexity", "minutes", "steps", "pairs seen", "counted FLOPs", "time × peak"],
                [_trained_row(name, row, peak) for name, row in trained.items()],
            ),
            Table(
                "The paper's table",
                ["model", "BLEU En-De", "BLEU En-Fr", "FLOPs En-De", "FLOPs En-Fr"],
                [[row[0], *("" if x is None else f"{x:g}" for x in row[1:])] for row in PRINTED],
            ),
        ],
        notes=[
            "The paper's BLEU is of models trained for days on WMT 2014 (4.5 and 36 million pairs) and of tokenized "
            "text; ours is sacreBLEU after minutes on the given corpus. What is compared is the order of the models.",
            "The Transformer trains with kernels of its own; the predecessors use torch's, with cuDNN on a GPU. Equal "
            "steps compare models independently of that, equal minutes do not.",
            "ByteNet, GNMT with reinforcement learning, mixture of experts and ensembles are not implemented here.",
        ],
    )


def _cost_claims(name: str, days: float, steps: int, model: dict[str, Any]) -> Iterator[Claim]:
    """Section 6.1: the cost is training time times the number of GPUs times an estimate of their sustained speed."""
    printed = next(row.flops_en_de for row in PRINTED if row.model == name)
    assert printed is not None
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


def _pairs_seen(row: dict[str, Any]) -> float:
    """Number of training pairs that a run has seen."""
    data = row["data"]
    return float(row["target_tokens_seen"] / (data["target_tokens"] / data["pairs"] + 1))


def _trained_row(name: str, row: dict[str, Any], peak: float | None) -> list[str]:
    data, scores, pairs = row["data"], row["scores"], _pairs_seen(row)
    src, tgt = (data[f"{side}_tokens"] / data["pairs"] + 1 for side in ("source", "target"))
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
    bleu = {row.model: row.bleu_en_de for row in PRINTED}
    for model, other in (("recurrent", "GNMT + RL"), ("convolutional", "ConvS2S")):
        paper = f"{bleu['Transformer base']} against {bleu[other]} ({other}, En-De)"
        claim = f"Transformer base is better than {MODELS[model][0]}"
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

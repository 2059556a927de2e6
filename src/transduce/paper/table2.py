"""Table 2: quality against training cost, for the Transformer and its predecessors."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from transduce.config import suggestion
from transduce.data.batch import Batch
from transduce.errors import ConfigError
from transduce.models.registry import build_config, create_model
from transduce.nn.loss import smoothed_cross_entropy
from transduce.paper.counting import count_flops
from transduce.paper.printed import BIG, TABLE2
from transduce.paper.section import Claim, Results, Section, Table, Verdict
from transduce.paper.training import VALIDATION_PAIRS, Corpus, Row, peak_rate, short_warmup, train_rows
from transduce.tokenizers.tokenizer import BOS
from transduce.training.loop import Outcome

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

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "P100": 9.5e12, "V100": 125e12}
"""Peak of matrix products without sparsity (bfloat16 or float16; P100: float32, as the paper's 9.5), by GPU."""
_PAPER_VOCABULARY, _PAPER_BATCH, _PAPER_LENGTH = 37_000, 25_000, 26
"""Tokens of the vocabulary, of a batch on each side, and of a sentence with its marker (about the mean of WMT 2014)."""
_SAVE_EVERY = 1000
_WARMUP = {"base": 1000, "big": 1000, "recurrent": 100, "convolutional": 100}
"""Of runs whose number of steps is not known before. Only the Transformer, which normalizes after each residual
connection, needs a long warmup; of a short run of a slow model it would be the largest part."""


def models_named(names: str | None) -> list[str]:
    """The models of a list such as "base,recurrent"."""
    wanted = [name.strip() for name in names.split(",") if name.strip()] if names else list(_DEFAULT)
    for name in wanted:
        if name not in MODELS:
            raise ConfigError(f"--models: no model {name!r}{suggestion(name, list(MODELS))}; use {', '.join(MODELS)}")
    return wanted


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
        limit: dict[str, Any] = {"train.minutes": minutes, "train.save_every": _SAVE_EVERY}
        budgets.append((f"{minutes:g}-minutes", limit))
    if steps is not None:
        limit = {"train.steps": steps, "train.warmup": short_warmup(steps), "train.save_every": -(-steps // 2)}
        budgets.append((f"{steps}-steps", limit))
    rows = []
    common = {"train.average": 1, "train.keep": 1, "train.valid_sentences": VALIDATION_PAIRS}
    for budget, limit in budgets:
        for model in models:
            _, preset, settings = MODELS[model]
            width = settings.get("model.d_model", 1024 if model == "big" else 512)
            schedule = {"train.learning_rate": peak_rate(width), "train.warmup": _WARMUP[model]}
            all_settings = {**settings, **schedule, **limit, **common}
            rows.append(Row(f"{pair}-{budget}-{model}", preset, all_settings, {"model.architecture", "train.minutes"}))
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
                [[row[0], *("" if x is None else f"{x:g}" for x in row[1:])] for row in TABLE2],
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
    printed = next(row.flops_en_de for row in TABLE2 if row.model == name)
    assert printed is not None
    cost = 8 * days * 86400 * PEAK_FLOPS["P100"]
    yield Claim(
        f"{name}: training cost",
        f"{printed:.1e} FLOPs",
        f"8 GPUs × {days:g} days × 9.5 TFLOP/s = {cost:.2e}",
        "confirmed" if abs(cost / printed - 1) < 0.05 else "contradicted",
    )
    pair = training_flops("encoder_decoder", model, _PAPER_VOCABULARY, _PAPER_LENGTH, _PAPER_LENGTH)
    counted = pair * steps * _PAPER_BATCH / _PAPER_LENGTH
    speed = counted / (8 * days * 86400)
    yield Claim(
        f"{name}: the speed that a P100 sustains",
        "9.5 TFLOP/s",
        f"{speed / 1e12:.1f} TFLOP/s: the products of {steps:,} steps are {counted:.1e} FLOPs, "
        f"{counted / printed:.0%} of the printed cost; 9.5 is the peak",
        "confirmed" if abs(speed / PEAK_FLOPS["P100"] - 1) < 0.2 else "contradicted",
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
    bleu = {row.model: row.bleu_en_de for row in TABLE2}
    for model, other in (("recurrent", "GNMT + RL"), ("convolutional", "ConvS2S")):
        paper = f"{bleu['Transformer base']} against {bleu[other]} ({other}, En-De)"
        claim = f"Transformer base is better than {MODELS[model][0]}"
        both = [start for start in starts if start + model in trained]
        for start in both:
            ours, theirs = (trained[start + name]["scores"].get("valid_bleu") for name in ("base", model))
            if ours is None or theirs is None:
                yield Claim(f"{claim}, {start.strip('-')}", paper, "the runs have no BLEU", "not checked")
            else:
                verdict: Verdict = "confirmed" if ours > theirs else "contradicted"
                yield Claim(f"{claim}, {start.strip('-')}", paper, f"BLEU {ours:.2f} against {theirs:.2f}", verdict)
        if not both:
            yield Claim(claim, paper, "is not trained yet", "not checked")

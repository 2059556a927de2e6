"""Section 3.2.1: additive against dot-product attention, and why scores are scaled by 1 / sqrt(d_k).

The functions are measured without training; then models are trained with each of them, as d_k grows.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.nn.kinds import Score
from transduce.paper.counting import allocated_bytes, describe_machine, exponent, seconds_of
from transduce.paper.section import Chart, Claim, Results, Section, Table
from transduce.paper.training import EVALUATION, Corpus, TableRow, peak_rate, step_budget, train_rows
from transduce.predecessors.variants import scores
from transduce.training.loop import Outcome

# Without training

_MEASURED_WIDTHS = (4, 16, 64, 256, 1024)
_SENTENCES, _HEADS, _LENGTH, _WIDTH = 8, 8, 64, 64
_KEYS, _QUERIES = 64, 2048
_DOT_PRODUCTS: tuple[Score, ...] = ("scaled", "unscaled")


def measure_scores(device: torch.device, budget: float = 0.5) -> Section:
    """Speed and memory of both kinds of scores, and softmax and gradients with and without the scale."""
    torch.manual_seed(1)
    times, memory = _speed_and_memory(device, budget)
    statistics = {score: [_softmax_statistics(score, width) for width in _MEASURED_WIDTHS] for score in _DOT_PRODUCTS}
    variance, entropy, gradient = (
        {score: [row[column] for row in rows] for score, rows in statistics.items()} for column in range(3)
    )
    rows = [
        [str(width), *(f"{values[score][i]:.4g}" for values in (variance, entropy, gradient) for score in statistics)]
        for i, width in enumerate(_MEASURED_WIDTHS)
    ]
    head = [f"{name}, {score}" for name in ("variance", "entropy", "gradient") for score in statistics]
    return Section(
        title="Section 3.2.1: scores of attention",
        measured_on=f"{describe_machine(device)}; speed with {_SENTENCES} sentences, {_HEADS} heads, "
        f"{_LENGTH} queries and keys, d_k = {_WIDTH}",
        claims=_function_claims(times, memory, variance["unscaled"], gradient),
        tables=[
            Table(
                "Scores of one layer",
                ["score", "milliseconds", "memory"],
                [[name, f"{1000 * times[name]:.3f}", f"{memory[name] / 1e6:.1f} MB"] for name in times],
            ),
            Table(f"Softmax over {_KEYS} keys, by d_k; components of q and k are N(0, 1)", ["d_k", *head], rows),
        ],
        charts=[
            Chart(
                "Gradient through the softmax",
                "d_k",
                "norm of its Jacobian",
                {score: list(zip(map(float, _MEASURED_WIDTHS), gradient[score], strict=True)) for score in statistics},
            )
        ],
        notes=[
            f"Entropy is at most {math.log(_KEYS):.2f} nats for {_KEYS} keys. The gradient is the median Frobenius "
            "norm of the softmax's Jacobian, diag(p) - pp^T; a few queries, whose two best keys have similar scores, "
            "keep a large one.",
        ],
    )


def _function_claims(
    times: dict[Score, float], memory: dict[Score, int], variance: list[float], gradient: dict[Score, list[float]]
) -> list[Claim]:
    first, last = _MEASURED_WIDTHS[0], _MEASURED_WIDTHS[-1]
    slower, larger = times["additive"] / times["scaled"], memory["additive"] / memory["scaled"]
    growth = exponent(list(zip(map(float, _MEASURED_WIDTHS), variance, strict=True)))
    kept, left = (gradient[score][-1] / gradient[score][0] for score in _DOT_PRODUCTS)
    return [
        Claim.checked(
            "Dot-product attention is much faster than additive attention",
            "much faster",
            f"additive scores take {slower:.0f} times as long",
            slower > 2,
        ),
        Claim.checked(
            "Dot-product attention is more space-efficient",
            "more space-efficient",
            f"additive scores take {larger:.0f} times the memory",
            larger > 2,
        ),
        Claim.checked(
            "The dot product of d_k independent components has variance d_k",
            "d_k",
            f"the variance grows with d_k^{growth:.3f}; for d_k = {last} it is {variance[-1]:,.0f}",
            abs(growth - 1) < 0.05,
        ),
        Claim.checked(
            "For large d_k, unscaled scores push the softmax into regions of extremely small gradients",
            "extremely small",
            f"from d_k = {first} to {last} the gradient changes by a factor of {left:.1g} without the "
            f"scale, and of {kept:.2f} with it",
            left < 0.1 and abs(kept - 1) < 0.2,
        ),
    ]


def _speed_and_memory(device: torch.device, budget: float) -> tuple[dict[Score, float], dict[Score, int]]:
    """Seconds and bytes for the scores of one layer."""
    size = (_SENTENCES, _HEADS, _LENGTH, _WIDTH)
    q, k = (torch.randn(size, device=device) for _ in range(2))
    v_HK = torch.randn(_HEADS, _WIDTH, device=device)
    times: dict[Score, float] = {}
    memory: dict[Score, int] = {}
    kinds: tuple[Score, ...] = ("scaled", "additive")
    for score in kinds:

        def compute(score: Score = score) -> Tensor:
            return scores(q, k, score, v_HK)

        times[score], memory[score] = seconds_of(compute, device, budget), allocated_bytes(compute)
    return times, memory


def _softmax_statistics(score: Score, width: int) -> tuple[float, float, float]:
    """Variance of the scores, entropy of the weights, and norm of the softmax's Jacobian."""
    generator = torch.Generator().manual_seed(width)
    q_TK, k_SK = (torch.randn(count, width, generator=generator) for count in (_QUERIES, _KEYS))
    scores_TS = scores(q_TK[None, None], k_SK[None, None], score)[0, 0]
    p_TS = scores_TS.softmax(-1)
    entropy = -(p_TS * p_TS.clamp(min=1e-30).log()).sum(-1).mean()
    jacobian_TSS = torch.diag_embed(p_TS) - p_TS[:, :, None] * p_TS[:, None]
    return scores_TS.var().item(), entropy.item(), jacobian_TSS.flatten(1).norm(dim=1).median().item()


# Trained models

_TRAINED_SCORES = ("scaled", "unscaled", "additive")
TRAINED_WIDTHS = (16, 64, 256)
"""Values of d_k; d_model and d_v stay those of the preset."""
_PRESET, _D_MODEL = "small", 256
_SIMILAR = 0.02
"""Relative difference of perplexities up to which two scores are called similar."""


def train_scores(corpus: Corpus, steps: int, sets: Sequence[str], out: Path) -> Outcome | None:
    """Train the models that are not finished; returns the outcome of one that was stopped."""
    training = {**step_budget(steps), "train.learning_rate": peak_rate(_D_MODEL), **EVALUATION}
    rows = []
    for width in TRAINED_WIDTHS:
        for score in _TRAINED_SCORES:
            varied = {"model.attention": score, "model.d_k": width}
            rows.append(TableRow(f"{score}-{width}", _PRESET, {**varied, **training}, varied))
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
    return Section(
        title="Section 3.2.1: models with other scores",
        measured_on=_measured_on(list(trained.values())),
        claims=list(_trained_claims(perplexity)),
        tables=[Table("Models with d_model = 256, by d_k", ["d_k", "score", "perplexity", "BLEU"], rows)],
        charts=[Chart("Validation perplexity", "d_k", "perplexity", lines)] if rows else [],
    )


def _trained_claims(perplexity: dict[str, float]) -> Iterator[Claim]:
    small, large = TRAINED_WIDTHS[0], TRAINED_WIDTHS[-1]
    missing = "is not trained yet (--train, --valid)"
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


def _measured_on(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "no model is trained yet"
    return f"{rows[0]['steps']:,} steps per model on {rows[0]['data']['pairs']:,} pairs"

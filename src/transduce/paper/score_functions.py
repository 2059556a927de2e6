"""Section 3.2.1: additive against dot-product attention, and why scores are scaled by 1 / sqrt(d_k)."""

import math

import torch
from torch import Tensor

from transduce.nn.kinds import Score
from transduce.paper.counting import allocated_bytes, describe_machine, exponent, seconds_of
from transduce.paper.section import Chart, Claim, Section, Table
from transduce.predecessors.attention_variants import scores

_WIDTHS = (4, 16, 64, 256, 1024)
_SENTENCES, _HEADS, _LENGTH, _WIDTH = 8, 8, 64, 64
_KEYS, _QUERIES = 64, 2048


def measure_scores(device: torch.device, budget: float = 0.5) -> Section:
    """Speed and memory of both kinds of scores, and softmax and gradients with and without the scale."""
    torch.manual_seed(1)
    times, memory = _speed_and_memory(device, budget)
    slower, larger = times["additive"] / times["scaled"], memory["additive"] / memory["scaled"]
    measured = {score: [_softmax_statistics(score, width) for width in _WIDTHS] for score in ("scaled", "unscaled")}
    variance = {score: [one[0] for one in rows] for score, rows in measured.items()}
    entropy = {score: [one[1] for one in rows] for score, rows in measured.items()}
    gradient = {score: [one[2] for one in rows] for score, rows in measured.items()}
    growth = exponent(list(zip(map(float, _WIDTHS), variance["unscaled"], strict=True)))
    kept, left = (gradient[score][-1] / gradient[score][0] for score in ("scaled", "unscaled"))
    claims = [
        _claim(
            "Dot-product attention is much faster than additive attention",
            "much faster",
            f"additive scores take {slower:.0f} times as long",
            slower > 2,
        ),
        _claim(
            "Dot-product attention is more space-efficient",
            "more space-efficient",
            f"additive scores take {larger:.0f} times the memory",
            larger > 2,
        ),
        _claim(
            "The dot product of d_k independent components has variance d_k",
            "d_k",
            f"the variance grows with d_k^{growth:.3f}; for d_k = {_WIDTHS[-1]} it is {variance['unscaled'][-1]:,.0f}",
            abs(growth - 1) < 0.05,
        ),
        _claim(
            "For large d_k, unscaled scores push the softmax into regions of extremely small gradients",
            "extremely small",
            f"from d_k = {_WIDTHS[0]} to {_WIDTHS[-1]} the gradient changes by a factor of {left:.1g} without the "
            f"scale, and of {kept:.2f} with it",
            left < 0.1 and abs(kept - 1) < 0.2,
        ),
    ]
    rows = [
        [str(width), *(f"{values[score][i]:.4g}" for values in (variance, entropy, gradient) for score in measured)]
        for i, width in enumerate(_WIDTHS)
    ]
    head = [f"{name}, {score}" for name in ("variance", "entropy", "gradient") for score in measured]
    return Section(
        title="Section 3.2.1: scores of attention",
        measured_on=f"{describe_machine(device)}; speed with {_SENTENCES} sentences, {_HEADS} heads, "
        f"{_LENGTH} queries and keys, d_k = {_WIDTH}",
        claims=claims,
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
                {score: list(zip(map(float, _WIDTHS), gradient[score], strict=True)) for score in measured},
            )
        ],
        notes=[
            f"Entropy is at most {math.log(_KEYS):.2f} nats for {_KEYS} keys. The gradient is the median Frobenius "
            "norm of the softmax's Jacobian, diag(p) - pp^T; a few queries, whose two best keys have similar scores, "
            "keep a large one.",
        ],
    )


def _claim(claim: str, paper: str, ours: str, good: bool) -> Claim:
    return Claim(claim, paper, ours, "confirmed" if good else "contradicted")


def _speed_and_memory(device: torch.device, budget: float) -> tuple[dict[str, float], dict[str, int]]:
    """Seconds and bytes for the scores of one layer."""
    size = (_SENTENCES, _HEADS, _LENGTH, _WIDTH)
    q, k = (torch.randn(size, device=device) for _ in range(2))
    v_HK = torch.randn(_HEADS, _WIDTH, device=device)
    times: dict[str, float] = {}
    memory: dict[str, int] = {}
    kinds: tuple[Score, ...] = ("scaled", "additive")
    for score in kinds:

        def compute(score: Score = score) -> Tensor:
            return scores(q, k, score, v_HK)

        times[score], memory[score] = seconds_of(compute, device, budget), allocated_bytes(compute)
    return times, memory


def _softmax_statistics(score: str, width: int) -> tuple[float, float, float]:
    """Variance of the scores, entropy of the weights, and norm of the softmax's Jacobian."""
    generator = torch.Generator().manual_seed(width)
    q_TK, k_SK = (torch.randn(count, width, generator=generator) for count in (_QUERIES, _KEYS))
    kind: Score = "scaled" if score == "scaled" else "unscaled"
    scores_TS = scores(q_TK[None, None], k_SK[None, None], kind)[0, 0]
    p_TS = scores_TS.softmax(-1)
    entropy = -(p_TS * p_TS.clamp(min=1e-30).log()).sum(-1).mean()
    jacobian_TSS = torch.diag_embed(p_TS) - p_TS[:, :, None] * p_TS[:, None]
    return scores_TS.var().item(), entropy.item(), jacobian_TSS.flatten(1).norm(dim=1).median().item()

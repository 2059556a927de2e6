"""What is measured without training: Table 1, and section 3.2.1 on the scores of attention."""

import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from transduce.nn.kinds import Score
from transduce.paper.section import Chart, Claim, Section, Table
from transduce.predecessors.variants import restricted_attention, scores

# Counting and timing

_aten = torch.ops.aten
_PRODUCTS = {_aten.mm, _aten.bmm, _aten.addmm, _aten.baddbmm, _aten.convolution}


def count_flops(function: Callable[[], object]) -> int:
    """The FLOPs of all matrix products and convolutions; an addition and a multiplication are two."""
    # The math backend consists of products that are counted; fused kernels on a CPU are not.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())


class _Depth(TorchDispatchMode):
    """Follows, for each tensor, the longest chain of dependent products that leads to it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.depths: dict[int, int] = {}
        self._kept: list[Tensor] = []  # so that no id is used twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        before = [self.depths.get(id(x), 0) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        depth = max(before, default=0) + (func.overloadpacket in _PRODUCTS)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.depths[id(tensor)] = max(depth, self.depths.get(id(tensor), 0))
                self._kept.append(tensor)
        return result


def sequential_products(function: Callable[[], object]) -> int:
    """The longest chain of products of which each needs the one before: they cannot run in parallel."""
    with torch.no_grad(), _Depth() as mode:
        function()
    return max(mode.depths.values(), default=0)


class _Allocations(TorchDispatchMode):
    """Adds up the memory of all tensors that are created, views excluded."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in known:
                self.bytes += tensor.untyped_storage().nbytes()
        return result


def allocated_bytes(function: Callable[[], object]) -> int:
    """The memory of all tensors that a function creates."""
    with torch.no_grad(), _Allocations() as mode:
        function()
    return mode.bytes


def seconds_of(function: Callable[[], object], device: torch.device, budget: float = 0.3) -> float:
    """The shortest time of a call; calls are repeated for about `budget` seconds, once at least."""

    def once() -> float:
        began = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    with torch.inference_mode():
        first = once()  # allocates, and on a GPU compiles
        times = [once()] if first < budget else [first]
        while sum(times) + first < budget and len(times) < 50:
            times.append(once())
    return min(times)


def exponent(points: list[tuple[float, float]]) -> float:
    """The slope of a line through the logarithms of the points: the power with which y grows with x."""
    x, y = np.log(np.array(points, dtype=np.float64)).T
    return float(np.polyfit(x, y, 1)[0])


def describe_machine(device: torch.device) -> str:
    """The device that measures, in words."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} {'thread' if threads == 1 else 'threads'}, torch {torch.__version__}"


# Table 1: complexity, sequential operations and maximum path length of four kinds of layers

WIDTH, KERNEL, NEIGHBOURHOOD = 512, 3, 65
"""d, k and r when time is measured; a neighbourhood is a position and 32 on either side."""
_LENGTHS = tuple(2**power for power in range(4, 13))
_REACH_LENGTHS, _REACH_NEIGHBOURHOOD = (16, 32, 64), 9
_TOLERANCE = 0.05
"""Largest difference of a fitted exponent from the one in the paper."""
_CPU = torch.device("cpu")
Layer = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Kind:
    """A kind of layer, and the row of the table that it is."""

    name: str
    complexity: str
    exponent_n: int
    exponent_d: int
    sequential: str
    make: Callable[[int, int, torch.device], Layer]
    """From width, kernel or neighbourhood, and device to a function of (n, d)."""
    sizes: tuple[int, ...] = (0,)
    """Kernels or neighbourhoods to count with; the first one is measured."""
    size_name: str = ""

    def on(self, n: int, d: int, *, size: int | None = None, device: torch.device = _CPU) -> Callable[[], Tensor]:
        """The computation of a layer of width d for n random vectors."""
        layer, x = self.make(d, size or self.sizes[0], device), torch.randn(n, d, device=device)
        return lambda: layer(x)

    def flops(self, n: int, d: int, size: int | None = None) -> int:
        compute = self.on(n, d, size=size)
        with torch.no_grad():
            return count_flops(compute)

    def exponents(self) -> dict[str, tuple[float, int]]:
        """The powers with which the counted FLOPs grow with n, d and the size, each with the one in the paper."""
        powers = {
            "n": (exponent([(n, self.flops(n, 64)) for n in (128, 256, 512, 1024)]), self.exponent_n),
            "d": (exponent([(d, self.flops(128, d)) for d in (32, 64, 128, 256)]), self.exponent_d),
        }
        if self.size_name:
            powers[self.size_name] = exponent([(size, self.flops(128, 64, size)) for size in self.sizes]), 1
        return powers


def _self_attention(width: int, _: int, device: torch.device) -> Layer:
    """softmax(xx^T / sqrt(d)) x: without projections, as the table counts."""
    return lambda x: ((x @ x.T) / math.sqrt(width)).softmax(-1) @ x


def _recurrent(width: int, _: int, device: torch.device) -> Layer:
    rnn = nn.RNN(width, width, device=device)
    return lambda x: rnn(x[:, None])[0][:, 0]


def _convolutional(width: int, kernel: int, device: torch.device) -> Layer:
    weight = torch.randn(width, width, kernel, device=device) / width
    return lambda x: F.conv1d(x.T[None], weight.to(x.dtype), padding=kernel // 2)[0].T


def _restricted(width: int, neighbourhood: int, device: torch.device) -> Layer:
    return lambda x: restricted_attention(x, x, x, neighbourhood)


KINDS = (
    Kind("self-attention", "O(n² · d)", 2, 1, "O(1)", _self_attention),
    Kind("recurrent", "O(n · d²)", 1, 2, "O(n)", _recurrent),
    Kind("convolutional", "O(k · n · d²)", 1, 2, "O(1)", _convolutional, (KERNEL, 5, 9, 17), "k"),
    Kind("self-attention (restricted)", "O(r · n · d)", 1, 1, "O(1)", _restricted, (NEIGHBOURHOOD, 33, 17, 9), "r"),
)


def measure_table1(device: torch.device, lengths: tuple[int, ...] = _LENGTHS, budget: float = 0.3) -> Section:
    """Count and measure every column of Table 1; `budget` is the time for each of the measured times."""
    torch.manual_seed(1)
    claims, rows = [], []
    for kind in KINDS:
        powers = kind.exponents()
        good = all(abs(power - paper) < _TOLERANCE for power, paper in powers.values())
        found = " · ".join(f"{name}^{power:.3f}" for name, (power, _) in powers.items())
        ours = f"counted FLOPs grow with {found}"
        claims.append(Claim.checked(f"{kind.name}: complexity per layer", kind.complexity, ours, good))
        short, long = (sequential_products(kind.on(n, 16)) for n in (16, 64))
        rows.append([kind.name, found, f"{short}, {long}"])
        good = short == long if kind.sequential == "O(1)" else 0.5 < (long - short) / (64 - 16) < 2
        ours = f"{short} dependent products for n = 16, {long} for n = 64"
        claims.append(Claim.checked(f"{kind.name}: sequential operations", kind.sequential, ours, good))
    paths = path_lengths()
    claims += _path_claims(paths)
    times = {
        kind.name: [(n, seconds_of(kind.on(n, WIDTH, device=device), device, budget)) for n in lengths]
        for kind in KINDS
    }
    claims.append(_faster_claim(times))
    # A count at n = 128, extrapolated by the exponent of n.
    flops = {kind.name: [(n, kind.flops(128, WIDTH) * (n / 128) ** kind.exponent_n) for n in lengths] for kind in KINDS}
    path_rows = [[name, *map(str, by_length.values())] for name, by_length in paths.items()]
    time_rows = [[str(n), *(f"{1000 * times[kind.name][i][1]:.3f}" for kind in KINDS)] for i, n in enumerate(lengths)]
    reach, x_label = "Layers until the first position can influence the last", "n, the length of the sequence"
    return Section.printed(
        "table1",
        measured_on=f"{describe_machine(device)}; times with d = {WIDTH}, k = {KERNEL}, r = {NEIGHBOURHOOD}",
        claims=claims,
        tables=[
            Table("Counted", ["layer", "FLOPs", "dependent products, n = 16 and 64"], rows),
            Table(reach, ["layer", *(f"n = {n}" for n in _REACH_LENGTHS)], path_rows),
            Table("Milliseconds for one layer", ["n", *(kind.name for kind in KINDS)], time_rows),
        ],
        charts=[
            Chart("Time of one layer", x_label, "seconds", times),
            Chart(f"Counted FLOPs of one layer, d = {WIDTH}", x_label, "FLOPs", flops),
        ],
    )


def dependence(layer: Layer, n: int, width: int = 4) -> Tensor:
    """Which output positions (rows) depend on which input positions (columns), from the layer's Jacobian."""
    # Small inputs: with larger ones, a softmax saturates, and gradients that are not zero underflow to zero.
    x = 0.01 * torch.randn(n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x).sum(-1), x)
    assert isinstance(jacobian, Tensor)
    return jacobian.abs().sum(-1) > 0


def layers_to_reach(depends: Sequence[Tensor], n: int) -> int:
    """Number of layers until the last position depends on the first, from the dependence of each; the last repeats."""
    reached, count = torch.zeros(n, dtype=torch.bool), 0
    reached[0] = True
    while not reached[-1]:
        reached = (depends[min(count, len(depends) - 1)] & reached).any(dim=1)
        count += 1
    return count


def path_lengths() -> dict[str, dict[int, int]]:
    """The maximum path length of every kind of layer, by the length of the sequence."""
    width = 4

    def step_of_recurrence(x: Tensor) -> Tensor:
        return torch.tanh(x + F.pad(x, (0, 0, 1, 0))[:-1])

    def dilated(dilation: int) -> Layer:
        weight = torch.ones(width, width, KERNEL, dtype=torch.float64)
        return lambda x: F.conv1d(F.pad(x.T[None], ((KERNEL - 1) * dilation, 0)), weight, dilation=dilation)[0].T

    # One layer is repeated; of the dilated ones, each is wider than the one before.
    layers: dict[str, list[Layer]] = {
        "self-attention": [_self_attention(width, 0, _CPU)],
        "recurrent": [step_of_recurrence],
        "convolutional, contiguous, k = 3": [_convolutional(width, KERNEL, _CPU)],
        "convolutional, causal, dilated, k = 3": [dilated(KERNEL**number) for number in range(5)],
        f"self-attention, r = {_REACH_NEIGHBOURHOOD}": [_restricted(width, _REACH_NEIGHBOURHOOD, _CPU)],
    }
    result: dict[str, dict[int, int]] = {name: {} for name in layers}
    for name, n in product(layers, _REACH_LENGTHS):
        result[name][n] = layers_to_reach([dependence(layer, n) for layer in layers[name]], n)
    return result


def _path_claims(paths: dict[str, dict[int, int]]) -> list[Claim]:
    kinds = dict(zip(paths, ("O(1)", "O(n)", "O(n/k)", "O(log_k(n))", "O(n/r)"), strict=True))
    claims = []
    for name, lengths in paths.items():
        found = ", ".join(f"{layers} for n = {n}" for n, layers in lengths.items())
        slope = exponent([(n, layers) for n, layers in lengths.items()])
        if kinds[name] == "O(log_k(n))":
            good = all(layers == math.ceil(math.log(n, KERNEL)) for n, layers in lengths.items())
        else:
            good = abs(slope - (0 if kinds[name] == "O(1)" else 1)) < 0.1
        claims.append(Claim.checked(f"{name}: maximum path length", kinds[name], found, good))
    return claims


def _faster_claim(times: dict[str, list[tuple[int, float]]]) -> Claim:
    """Section 4: self-attention is faster than recurrence if n is smaller than d."""
    pairs = list(zip(times["self-attention"], times["recurrent"], strict=True))
    short = [(n, recurrent / attention) for (n, attention), (_, recurrent) in pairs if n < WIDTH]
    slowest = min(short, key=lambda pair: pair[1], default=(0, 0.0))
    slower = [n for (n, attention), (_, recurrent) in pairs if attention > recurrent]
    where = f"; slower from n = {slower[0]:,}" if slower else f"; faster up to n = {pairs[-1][0][0]:,}"
    found = f"at least {slowest[1]:.1f} times as fast for n < {WIDTH} (at n = {slowest[0]}){where}"
    return Claim.checked("Self-attention is faster than recurrence if n < d", "faster", found, slowest[1] > 1)


# Section 3.2.1: additive against dot-product attention, and why scores are scaled by 1 / sqrt(d_k)

_WIDTHS = (4, 16, 64, 256, 1024)
_SENTENCES, _HEADS, _LENGTH, _WIDTH = 8, 8, 64, 64
_KEYS, _QUERIES = 64, 2048
_DOT_PRODUCTS: tuple[Score, ...] = ("scaled", "unscaled")


def measure_scores(device: torch.device, budget: float = 0.5) -> Section:
    """Speed and memory of both kinds of scores, and softmax and gradients with and without the scale."""
    torch.manual_seed(1)
    times, memory = _speed_and_memory(device, budget)
    statistics = {score: [_softmax_statistics(score, width) for width in _WIDTHS] for score in _DOT_PRODUCTS}
    variance, entropy, gradient = (
        {score: [row[column] for row in rows] for score, rows in statistics.items()} for column in range(3)
    )
    rows = [
        [str(width), *(f"{values[score][i]:.4g}" for values in (variance, entropy, gradient) for score in statistics)]
        for i, width in enumerate(_WIDTHS)
    ]
    head = [f"{name}, {score}" for name in ("variance", "entropy", "gradient") for score in statistics]
    speed_rows = [[name, f"{1000 * times[name]:.3f}", f"{memory[name] / 1e6:.1f} MB"] for name in times]
    lines: dict[str, list[tuple[float, float]]] = {
        score: list(zip(map(float, _WIDTHS), gradient[score], strict=True)) for score in statistics
    }
    return Section.printed(
        "scores",
        measured_on=f"{describe_machine(device)}; speed with {_SENTENCES} sentences, {_HEADS} heads, "
        f"{_LENGTH} queries and keys, d_k = {_WIDTH}",
        claims=_score_claims(times, memory, variance["unscaled"], gradient),
        tables=[
            Table("Scores of one layer", ["score", "milliseconds", "memory"], speed_rows),
            Table(f"Softmax over {_KEYS} keys, by d_k; components of q and k are N(0, 1)", ["d_k", *head], rows),
        ],
        charts=[Chart("Gradient through the softmax", "d_k", "norm of its Jacobian", lines)],
    )


def _score_claims(
    times: dict[Score, float], memory: dict[Score, int], variance: list[float], gradient: dict[Score, list[float]]
) -> list[Claim]:
    first, last = _WIDTHS[0], _WIDTHS[-1]
    slower, larger = times["additive"] / times["scaled"], memory["additive"] / memory["scaled"]
    growth = exponent(list(zip(map(float, _WIDTHS), variance, strict=True)))
    kept, left = (gradient[score][-1] / gradient[score][0] for score in _DOT_PRODUCTS)
    faster = "Dot-product attention is much faster than additive attention"
    smaller = "Dot-product attention is more space-efficient"
    grows = "The dot product of d_k independent components has variance d_k"
    vanishes = "For large d_k, unscaled scores push the softmax into regions of extremely small gradients"
    sizes = f"additive scores take {larger:.0f} times the memory"
    variances = f"the variance grows with d_k^{growth:.3f}; for d_k = {last} it is {variance[-1]:,.0f}"
    gradients = (
        f"from d_k = {first} to {last} the gradient changes by a factor of {left:.1g} without the scale, and of "
        f"{kept:.2f} with it"
    )
    return [
        Claim.checked(faster, "much faster", f"additive scores take {slower:.0f} times as long", slower > 2),
        Claim.checked(smaller, "more space-efficient", sizes, larger > 2),
        Claim.checked(grows, "d_k", variances, abs(growth - 1) < 0.05),
        Claim.checked(vanishes, "extremely small", gradients, left < 0.1 and abs(kept - 1) < 0.2),
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

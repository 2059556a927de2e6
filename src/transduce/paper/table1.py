"""Table 1: complexity, sequential operations and maximum path length of four kinds of layers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.paper.counting import count_flops, describe_machine, exponent, seconds_of, sequential_products
from transduce.paper.section import Chart, Claim, Section, Table
from transduce.predecessors.variants import restricted_attention

WIDTH, KERNEL, NEIGHBOURHOOD = 512, 3, 65
"""d, k and r when time is measured; a neighbourhood is a position and 32 on either side."""
_LENGTHS = tuple(2**power for power in range(4, 13))
_REACH_LENGTHS, _REACH_NEIGHBOURHOOD = (16, 32, 64), 9
_TOLERANCE = 0.05
"""Largest difference of a fitted exponent from the one in the paper."""
Layer = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Kind:
    """A kind of layer, and the row of the table that it is."""

    name: str
    complexity: str
    exponent_n: int
    exponent_d: int
    sequential: str
    path: str
    make: Callable[[int, int, torch.device], Layer]
    """From width, kernel or neighbourhood, and device to a function of (n, d)."""
    sizes: tuple[int, ...] = (0,)
    """Kernels or neighbourhoods to count with; the first one is measured."""
    size_name: str = ""


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
    Kind("self-attention", "O(n² · d)", 2, 1, "O(1)", "O(1)", _self_attention),
    Kind("recurrent", "O(n · d²)", 1, 2, "O(n)", "O(n)", _recurrent),
    Kind("convolutional", "O(k · n · d²)", 1, 2, "O(1)", "O(log_k(n))", _convolutional, (KERNEL, 5, 9, 17), "k"),
    Kind(
        "self-attention (restricted)", "O(r · n · d)", 1, 1, "O(1)", "O(n/r)", _restricted,
        (NEIGHBOURHOOD, 33, 17, 9), "r",
    ),
)  # fmt: skip


def measure_table1(device: torch.device, lengths: tuple[int, ...] = _LENGTHS, budget: float = 0.3) -> Section:
    """Count and measure every column of Table 1; `budget` is the time for each of the measured times."""
    torch.manual_seed(1)
    claims, rows = [], []
    for kind in KINDS:
        powers = _exponents(kind)
        good = all(abs(power - paper) < _TOLERANCE for power, paper in powers.values())
        found = "counted FLOPs grow with " + " · ".join(f"{name}^{power:.3f}" for name, (power, _) in powers.items())
        claims.append(Claim.checked(f"{kind.name}: complexity per layer", kind.complexity, found, good))
        chain = {n: _chain(kind, n) for n in (16, 64)}
        rows.append([kind.name, found.removeprefix("counted FLOPs grow with "), f"{chain[16]}, {chain[64]}"])
        constant = chain[16] == chain[64]
        grows = 0.5 < (chain[64] - chain[16]) / (64 - 16) < 2
        found = f"{chain[16]} dependent products for n = 16, {chain[64]} for n = 64"
        good = constant if kind.sequential == "O(1)" else grows
        claims.append(Claim.checked(f"{kind.name}: sequential operations", kind.sequential, found, good))
    paths = path_lengths()
    claims += _path_claims(paths)
    times = {kind.name: [(n, _seconds(kind, n, device, budget)) for n in lengths] for kind in KINDS}
    claims.append(_faster_claim(times))
    path_rows = [[name, *map(str, by_length.values())] for name, by_length in paths.items()]
    time_rows = [[str(n), *(f"{1000 * times[kind.name][i][1]:.3f}" for kind in KINDS)] for i, n in enumerate(lengths)]
    return Section(
        title="Table 1: complexity, sequential operations and path length",
        measured_on=f"{describe_machine(device)}; times with d = {WIDTH}, k = {KERNEL}, r = {NEIGHBOURHOOD}",
        claims=claims,
        tables=[
            Table("Counted", ["layer", "FLOPs", "dependent products, n = 16 and 64"], rows),
            Table(
                "Layers until the first position can influence the last",
                ["layer", *(f"n = {n}" for n in _REACH_LENGTHS)],
                path_rows,
            ),
            Table("Milliseconds for one layer", ["n", *(kind.name for kind in KINDS)], time_rows),
        ],
        charts=[
            Chart("Time of one layer", "n, the length of the sequence", "seconds", times),
            Chart(
                f"Counted FLOPs of one layer, d = {WIDTH}",
                "n, the length of the sequence",
                "FLOPs",
                {kind.name: [(n, _formula(kind, n)) for n in lengths] for kind in KINDS},
            ),
        ],
        notes=[
            "The table counts the attention itself, without the projections of queries, keys and values, which take "
            "O(n · d²) in every kind of layer.",
            "Path lengths follow which output positions depend on which input positions (one Jacobian of each layer); "
            "a step of a recurrence counts as one layer. O(log_k(n)) holds for dilated convolutions only, as the paper "
            "says in its text; contiguous ones need O(n/k) layers.",
        ],
    )


def _exponents(kind: Kind) -> dict[str, tuple[float, int]]:
    """The powers with which the counted FLOPs grow with n, d and the size, each with the one in the paper."""
    powers = {
        "n": (exponent([(n, _flops(kind, n, 64)) for n in (128, 256, 512, 1024)]), kind.exponent_n),
        "d": (exponent([(d, _flops(kind, 128, d)) for d in (32, 64, 128, 256)]), kind.exponent_d),
    }
    if kind.size_name:
        powers[kind.size_name] = exponent([(size, _flops(kind, 128, 64, size)) for size in kind.sizes]), 1
    return powers


def _flops(kind: Kind, n: int, d: int, size: int | None = None) -> int:
    layer, x = kind.make(d, size or kind.sizes[0], torch.device("cpu")), torch.randn(n, d)
    with torch.no_grad():
        return count_flops(lambda: layer(x))


def _formula(kind: Kind, n: int) -> float:
    """The counted FLOPs at the measured width, extrapolated from a count at n = 128 by the exponent of n."""
    return _flops(kind, 128, WIDTH) * (n / 128) ** kind.exponent_n


def _chain(kind: Kind, n: int) -> int:
    layer, x = kind.make(16, kind.sizes[0], torch.device("cpu")), torch.randn(n, 16)
    return sequential_products(lambda: layer(x))


def _seconds(kind: Kind, n: int, device: torch.device, budget: float) -> float:
    layer, x = kind.make(WIDTH, kind.sizes[0], device), torch.randn(n, WIDTH, device=device)
    return seconds_of(lambda: layer(x), device, budget)


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
    cpu, width = torch.device("cpu"), 4

    def step_of_recurrence(x: Tensor) -> Tensor:
        return torch.tanh(x + F.pad(x, (0, 0, 1, 0))[:-1])

    def dilated(dilation: int) -> Layer:
        weight = torch.ones(width, width, KERNEL, dtype=torch.float64)
        return lambda x: F.conv1d(F.pad(x.T[None], ((KERNEL - 1) * dilation, 0)), weight, dilation=dilation)[0].T

    # One layer is repeated; of the dilated ones, each is wider than the one before.
    layers: dict[str, list[Layer]] = {
        "self-attention": [_self_attention(width, 0, cpu)],
        "recurrent": [step_of_recurrence],
        "convolutional, contiguous, k = 3": [_convolutional(width, KERNEL, cpu)],
        "convolutional, causal, dilated, k = 3": [dilated(KERNEL**number) for number in range(5)],
        f"self-attention, r = {_REACH_NEIGHBOURHOOD}": [_restricted(width, _REACH_NEIGHBOURHOOD, cpu)],
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

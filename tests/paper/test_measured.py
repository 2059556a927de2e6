"""Table 1 and section 3.2.1: what is counted agrees with formulas; no test depends on the speed of the machine."""

import math

import pytest
import torch
from torch.nn import functional as F

from transduce.paper.measured import (
    KINDS,
    allocated_bytes,
    count_flops,
    dependence,
    exponent,
    layers_to_reach,
    measure_scores,
    measure_table1,
    path_lengths,
    seconds_of,
    sequential_products,
)

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def section() -> object:
    return measure_table1(CPU, lengths=(16, 32), budget=0.0)


def test_every_counted_claim_of_table_1_is_confirmed(section: object) -> None:
    counted = section.claims[:-1]  # the last one is measured
    assert [claim.verdict for claim in counted] == ["confirmed"] * 13
    assert section.claims[-1].claim == "Self-attention is faster than recurrence if n < d"
    assert {"O(n² · d)", "O(n · d²)", "O(k · n · d²)", "O(r · n · d)"} <= {claim.paper for claim in counted}


def test_times_are_measured_for_every_kind_and_length(section: object) -> None:
    times = section.charts[0].lines
    assert times.keys() == {kind.name for kind in KINDS}
    for points in times.values():
        assert [n for n, _ in points] == [16, 32]
        assert all(seconds > 0 for _, seconds in points)


def test_path_lengths_are_their_formulas() -> None:
    paths = path_lengths()
    for n in (16, 32, 64):
        assert [lengths[n] for lengths in paths.values()] == [
            1,
            n - 1,
            n - 1,  # a kernel of width 3 sees one position on either side
            math.ceil(math.log(n, 3)),
            math.ceil((n - 1) / 4),  # a neighbourhood of 9 has four positions on either side
        ]


def test_dependence_is_that_of_the_layer() -> None:
    causal = dependence(lambda x: x.cumsum(0), 5)
    assert causal.equal(torch.ones(5, 5, dtype=torch.bool).tril())
    (attention,) = (kind for kind in KINDS if kind.name == "self-attention")
    assert dependence(attention.make(4, 0, CPU), 64).all()
    shift = dependence(lambda x: x.roll(1, 0) + x, 6)
    assert layers_to_reach([shift.tril()], 6) == 5


def test_the_claims_about_scores_that_do_not_depend_on_speed_are_confirmed() -> None:
    section = measure_scores(CPU, budget=0.0)
    verdicts = {claim.claim.partition(",")[0]: claim.verdict for claim in section.claims}
    assert verdicts["Dot-product attention is more space-efficient"] == "confirmed"
    assert verdicts["The dot product of d_k independent components has variance d_k"] == "confirmed"
    assert verdicts["For large d_k"] == "confirmed"
    widths = [int(row[0]) for row in section.tables[1].rows]
    for width, (_, scaled, unscaled, *_) in zip(widths, section.tables[1].rows, strict=True):
        assert float(scaled) == pytest.approx(1, abs=0.2)
        assert float(unscaled) == pytest.approx(width, rel=0.2)


def test_flops_are_two_for_each_multiplication_with_an_addition() -> None:
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    assert count_flops(lambda: a @ b) == 2 * 3 * 5 * 7
    x, kernel = torch.randn(1, 4, 10), torch.randn(6, 4, 3)
    assert count_flops(lambda: F.conv1d(x, kernel, padding=1)) == 2 * 3 * 4 * 6 * 10


def test_fused_attention_is_counted_too() -> None:
    q, k, v = (torch.randn(2, 3, length, 8) for length in (5, 7, 7))
    assert count_flops(lambda: F.scaled_dot_product_attention(q, k, v)) == 2 * 2 * (2 * 3) * 5 * 7 * 8


def test_dependent_products_are_counted_along_the_longest_chain() -> None:
    a = torch.randn(4, 4)
    assert sequential_products(lambda: (a @ a) + (a @ a)) == 1
    assert sequential_products(lambda: ((a @ a).tanh() @ a).T @ torch.cat([a, a], dim=1)) == 3
    assert sequential_products(lambda: a + a) == 0


def test_memory_counts_new_tensors_but_no_views() -> None:
    a = torch.randn(10, 10)
    assert allocated_bytes(lambda: (a + 1).T.view(10, 10)[:5]) == 400
    assert allocated_bytes(lambda: torch.tanh(a + 1)) == 800


@pytest.mark.parametrize("power", [0.0, 1.0, 2.5])
def test_an_exponent_is_the_slope_of_the_logarithms(power: float) -> None:
    assert exponent([(x, 3 * x**power) for x in (1.0, 2.0, 8.0)]) == pytest.approx(power)


def test_a_slow_function_is_called_once_and_a_fast_one_repeatedly() -> None:
    calls: list[int] = []
    assert seconds_of(lambda: calls.append(1), torch.device("cpu"), budget=0.0) >= 0
    assert len(calls) == 1
    seconds_of(lambda: calls.append(1), torch.device("cpu"), budget=0.2)
    assert len(calls) > 20

"""Counted FLOPs, dependent products and memory of computations whose counts are known."""

import pytest
import torch
from torch.nn import functional as F

from transduce.paper.counting import allocated_bytes, count_flops, exponent, seconds_of, sequential_products


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

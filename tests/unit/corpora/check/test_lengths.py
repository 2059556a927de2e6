"""Lengths that go together, and stretches where they do so at a shift."""

import numpy as np
import pytest

from transduce.corpora.check.lengths import IMPROBABLE, LengthModel
from transduce.corpora.check.shifts import BLOCK, find_shifts


def draw(pairs: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Lengths as Gale and Church's model has them: 1.2 characters for one, variance 2 for each."""
    chance = np.random.default_rng(seed)
    src = chance.integers(10, 200, pairs).astype(float)
    return src, np.maximum(np.round(1.2 * src + np.sqrt(2 * 1.2 * src) * chance.standard_normal(pairs)), 1)


def test_the_model_finds_what_the_lengths_were_drawn_with() -> None:
    model = LengthModel.fit(*draw(20_000))
    assert model.ratio == pytest.approx(1.2, abs=0.01)
    assert model.spread**2 == pytest.approx(2, abs=0.1)


def test_a_deviation_is_the_formula() -> None:
    found = LengthModel(ratio=1.5, spread=2.0).deviations(np.array([100.0]), np.array([200.0]))
    assert found == pytest.approx([(200 - 150) / (2 * np.sqrt((150 + 200) / 2))])


def test_a_tenth_of_wrong_pairs_hardly_moves_the_model() -> None:
    src, tgt = draw(3_000)
    tgt[:300] = 3
    model = LengthModel.fit(src, tgt)
    assert model.ratio == pytest.approx(1.2, abs=0.03)
    assert (np.abs(model.deviations(src, tgt)) > IMPROBABLE)[:300].mean() > 0.8


def test_equal_lengths_are_no_reason_to_divide_by_zero() -> None:
    equal = np.full(600, 20.0)
    assert LengthModel.fit(equal, equal).deviations(equal, equal).tolist() == [0.0] * 600


@pytest.mark.parametrize("by", [-10, -2, 1, 7])
@pytest.mark.parametrize(("first", "end"), [(0, 3_000), (1_200, 3_000), (500, 1_500)])
def test_a_shifted_stretch_is_found_where_it_is(by: int, first: int, end: int) -> None:
    src, tgt = draw(3_000)
    tgt[first:end] = np.roll(tgt[first:end], by)
    (found,) = find_shifts(src, tgt, LengthModel.fit(src, tgt))
    assert found.by == by
    assert abs(found.first - first) <= 2 * BLOCK
    assert abs(found.end - end) <= 2 * BLOCK


def test_no_shift_is_found_where_none_is() -> None:
    src, tgt = draw(5_000)
    assert find_shifts(src, tgt, LengthModel.fit(src, tgt)) == []
    order = np.argsort(src, kind="stable")  # neighbours fit as well as the pairs themselves
    assert find_shifts(src[order], tgt[order], LengthModel.fit(src, tgt)) == []
    assert find_shifts(src, np.random.default_rng(2).permutation(tgt), LengthModel.fit(src, tgt)) == []


def test_few_lines_are_no_reason_to_fail() -> None:
    model = LengthModel(1.0, 1.0)
    for pairs in (0, 1, 9, 11):
        assert find_shifts(*draw(pairs), model) == []

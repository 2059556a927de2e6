"""The model of lengths, and shifted ranges of lines."""

import numpy as np
import pytest

from transduce.corpora.check.lengths import BLOCK, IMPROBABLE, LengthModel, find_shifts


def draw(pairs: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Lengths drawn from Gale and Church's model: a mean ratio of 1.2, a variance of 2 for each character."""
    rng = np.random.default_rng(seed)
    src = rng.integers(10, 200, pairs).astype(float)
    return src, np.maximum(np.round(1.2 * src + np.sqrt(2 * 1.2 * src) * rng.standard_normal(pairs)), 1)


def test_the_fit_recovers_the_parameters_of_the_distribution() -> None:
    model = LengthModel.fit(*draw(20_000))
    assert model.ratio == pytest.approx(1.2, abs=0.01)
    assert model.std**2 == pytest.approx(2, abs=0.1)


def test_a_deviation_is_that_of_gale_and_church() -> None:
    result = LengthModel(ratio=1.5, std=2.0).deviations(np.array([100.0]), np.array([200.0]))
    assert result == pytest.approx([(200 - 150) / (2 * np.sqrt((150 + 200) / 2))])


def test_a_tenth_of_wrong_pairs_hardly_changes_the_model() -> None:
    src, tgt = draw(3_000)
    tgt[:300] = 3
    model = LengthModel.fit(src, tgt)
    assert model.ratio == pytest.approx(1.2, abs=0.03)
    assert (np.abs(model.deviations(src, tgt)) > IMPROBABLE)[:300].mean() > 0.8


def test_equal_lengths_do_not_divide_by_zero() -> None:
    equal = np.full(600, 20.0)
    assert LengthModel.fit(equal, equal).deviations(equal, equal).tolist() == [0.0] * 600


@pytest.mark.parametrize("offset", [-10, -2, 1, 7])
@pytest.mark.parametrize(("first", "end"), [(0, 3_000), (1_200, 3_000), (500, 1_500)])
def test_a_shifted_range_is_found_at_its_place(offset: int, first: int, end: int) -> None:
    src, tgt = draw(3_000)
    tgt[first:end] = np.roll(tgt[first:end], offset)
    (shift,) = find_shifts(src, tgt, LengthModel.fit(src, tgt))
    assert shift.offset == offset
    assert abs(shift.first - first) <= 2 * BLOCK
    assert abs(shift.end - end) <= 2 * BLOCK


def test_no_shift_is_found_if_there_is_none() -> None:
    src, tgt = draw(5_000)
    assert find_shifts(src, tgt, LengthModel.fit(src, tgt)) == []
    order = np.argsort(src, kind="stable")  # neighbours fit as well as the pairs themselves
    assert find_shifts(src[order], tgt[order], LengthModel.fit(src, tgt)) == []
    assert find_shifts(src, np.random.default_rng(2).permutation(tgt), LengthModel.fit(src, tgt)) == []


def test_a_file_of_few_lines_has_no_shift() -> None:
    model = LengthModel(1.0, 1.0)
    for pairs in (0, 1, 9, 11):
        assert find_shifts(*draw(pairs), model) == []

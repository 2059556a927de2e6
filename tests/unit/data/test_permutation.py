"""The shuffle that can be asked for any one place."""

import numpy as np
import pytest

from transduce.data.permutation import permuted


@pytest.mark.parametrize("key", [0, 1, 12_345_678_901])
def test_every_place_of_a_small_range_is_hit_exactly_once(key: int) -> None:
    for size in range(1, 201):
        assert sorted(permuted(np.arange(size), size, key).tolist()) == list(range(size))


@pytest.mark.parametrize("size", [1023, 1024, 1025, 65_536, 65_537, 300_001])
def test_every_place_of_a_large_range_is_hit_exactly_once(size: int) -> None:
    hits = np.bincount(permuted(np.arange(size), size, key=7), minlength=size)
    assert len(hits) == size
    assert (hits == 1).all()


def test_places_of_a_huge_range_stay_in_it_and_apart() -> None:
    size = 10**12 + 39
    places = np.concatenate([np.arange(20_000), size - 1 - np.arange(20_000)])
    found = permuted(places, size, key=3)
    assert 0 <= found.min() <= found.max() < size
    assert len(set(found.tolist())) == len(places)


def test_a_place_goes_to_the_same_spot_whatever_it_is_asked_with() -> None:
    whole = permuted(np.arange(1000), 1000, key=5)
    for place in (0, 1, 500, 999):
        assert permuted(np.array([place]), 1000, key=5).tolist() == [whole[place]]
    assert permuted(np.array([999, 3, 3]), 1000, key=5).tolist() == [whole[999], whole[3], whole[3]]


def test_no_places_are_no_places() -> None:
    assert permuted(np.arange(0), 10, key=1).tolist() == []


def test_the_places_asked_for_are_left_as_they_are() -> None:
    places = np.arange(50)
    permuted(places, 50, key=1)
    assert places.tolist() == list(range(50))


def test_another_key_gives_another_order() -> None:
    orders = {tuple(permuted(np.arange(40), 40, key).tolist()) for key in range(200)}
    assert len(orders) == 200


@pytest.mark.parametrize("size", [100, 4096])
def test_neighbours_are_scattered(size: int) -> None:
    found = permuted(np.arange(size), size, key=11)
    assert abs(np.corrcoef(np.arange(size), found)[0, 1]) < 0.3
    # In a random order two neighbours are a third of the range apart on average.
    assert np.abs(np.diff(found)).mean() == pytest.approx(size / 3, rel=0.25)

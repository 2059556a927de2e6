"""Reservoir sampling."""

from transduce.files.pairs import Reservoir


def sample(size: int, of: range) -> list[int]:
    reservoir = Reservoir[int](size)
    for number in of:
        reservoir.offer(number)
    return reservoir.kept


def test_a_stream_that_fits_is_kept_in_order() -> None:
    assert sample(10, range(7)) == list(range(7))


def test_a_longer_stream_is_sampled_uniformly_and_reproducibly() -> None:
    kept = sample(3_000, range(30_000))
    assert len(set(kept)) == 3_000
    for first in range(0, 30_000, 10_000):
        assert 850 < sum(first <= number < first + 10_000 for number in kept) < 1_150
    assert kept == sample(3_000, range(30_000))

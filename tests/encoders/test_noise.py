"""Random choices for examples: they depend on nothing but the example and the seed, and have the right shares."""

import numpy as np

from transduce.encoders.noise import Groups, RandomExamples


def sequences(count: int, longest: int = 40) -> list[np.ndarray]:
    chance = np.random.default_rng(0)
    return [chance.integers(4, 1000, chance.integers(1, longest)) for _ in range(count)]


def test_numbers_do_not_depend_on_the_other_examples() -> None:
    every = sequences(50)
    whole = RandomExamples(every, seed=3)
    part = RandomExamples([list(ids) for ids in every[20:30]], seed=3)  # lists and arrays mean the same
    inside = (whole.groups.group_N >= 20) & (whole.groups.group_N < 30)
    assert (whole.numbers(whole.groups, 1)[inside] == part.numbers(part.groups, 1)).all()
    assert (whole.number_of_each(2)[20:30] == part.number_of_each(2)).all()


def test_seed_purpose_and_order_change_the_numbers() -> None:
    every = sequences(5)
    first = RandomExamples(every, seed=1)
    numbers = first.numbers(first.groups, 0)
    assert not np.isclose(numbers, first.numbers(first.groups, 1)).any()
    for other in (RandomExamples(every, seed=2), RandomExamples([ids[::-1] for ids in every], seed=1)):
        assert np.isclose(numbers, other.numbers(other.groups, 0)).sum() <= (np.array(list(map(len, every))) == 1).sum()


def test_numbers_are_uniform_and_independent() -> None:
    random = RandomExamples(sequences(4000), seed=1)
    numbers = random.numbers(random.groups, 7)
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    counts, _ = np.histogram(numbers, 16, (0, 1))
    assert ((counts - len(numbers) / 16) ** 2).sum() / (len(numbers) / 16) < 40  # chi-squared, 15 degrees of freedom
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.01
    assert abs(np.corrcoef(numbers, random.numbers(random.groups, 8))[0, 1]) < 0.01


def test_groups_choose_exactly_as_many_items_as_asked_for() -> None:
    groups = Groups(np.array([5, 0, 1, 8]))
    random = np.random.default_rng(1).random(14)
    chosen = groups.choose(np.array([2, 0, 1, 8]), random)
    assert np.bincount(groups.group_N[chosen], minlength=4).tolist() == [2, 0, 1, 8]
    assert sorted(random[:5][chosen[:5]]) == sorted(random[:5])[:2]
    assert groups.sums_before(np.arange(14)).tolist() == [0, 0, 1, 3, 6, 0, 0, 6, 13, 21, 30, 40, 51, 63]

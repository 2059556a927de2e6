"""Repeats and leaks, against sets and dictionaries of Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transduce.corpora.check.repeats import came_before, find_leaks, of_pairs

NUMBERS = st.lists(st.integers(0, 5), max_size=30)
PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30)


def keys(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.uint64)


@given(NUMBERS)
def test_what_came_before(numbers: list[int]) -> None:
    assert came_before(keys(numbers)).tolist() == [one in numbers[:place] for place, one in enumerate(numbers)]


@given(PAIRS, PAIRS)
def test_leaks_are_what_sets_say(pairs: list[tuple[int, int]], unseen: list[tuple[int, int]]) -> None:
    columns = [keys([pair[side] for pair in some]) for some in (pairs, unseen) for side in (0, 1)]
    found = find_leaks(*columns)
    sources, targets = {source for source, _ in unseen}, {target for _, target in unseen}
    for number, (source, target) in enumerate(pairs):
        expected = (
            "pair"
            if (source, target) in unseen
            else "source"
            if source in sources
            else "target"
            if target in targets
            else None
        )
        assert [name for name in ("pair", "source", "target") if getattr(found, name)[number]] == [expected] * bool(
            expected
        )


def test_the_key_of_a_pair_knows_its_sides() -> None:
    assert len({int(of_pairs(keys([a]), keys([b]))[0]) for a in range(20) for b in range(20)}) == 400

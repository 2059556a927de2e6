"""Duplicates and leaks, compared with Python's sets and lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transduce.corpora.check.scan import find_leaks, occurred_before, pair_keys

NUMBERS = st.lists(st.integers(0, 5), max_size=30)
PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30)


def keys(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.uint64)


@given(NUMBERS)
def test_a_key_occurred_before_if_an_earlier_one_is_equal(numbers: list[int]) -> None:
    assert occurred_before(keys(numbers)).tolist() == [number in numbers[:n] for n, number in enumerate(numbers)]


@given(PAIRS, PAIRS)
def test_leaks_are_the_pairs_and_texts_that_are_on_either_side_of_the_held_out_set(
    pairs: list[tuple[int, int]], held_out: list[tuple[int, int]]
) -> None:
    columns = [keys([pair[side] for pair in some]) for some in (pairs, held_out) for side in (0, 1)]
    leaks = dict(zip(("pair", "source", "target"), find_leaks(*columns), strict=True))
    texts = {text for pair in held_out for text in pair}
    for number, (source, target) in enumerate(pairs):
        expected = (
            "pair"
            if (source, target) in held_out or (target, source) in held_out
            else "source"
            if source in texts
            else "target"
            if target in texts
            else None
        )
        assert [name for name, flags in leaks.items() if flags[number]] == [expected] * bool(expected)


def test_the_key_of_a_pair_depends_on_the_order_of_its_sides() -> None:
    assert len({int(pair_keys(keys([a]), keys([b]))[0]) for a in range(20) for b in range(20)}) == 400

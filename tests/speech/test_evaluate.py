"""Scores of transcripts, against small examples that are counted by hand."""

import random

import pytest

from transduce.speech.evaluate import edits, exact_match, word_error_rate


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [("", "", 0), ("a b", "", 2), ("", "a", 1), ("a b c", "a c", 1), ("a b c", "a x c", 1), ("b a", "a b", 2)],
)
def test_edits(first: str, second: str, count: int) -> None:
    assert edits(first.split(), second.split()) == edits(second.split(), first.split()) == count


def test_edits_follow_the_recurrence() -> None:
    def defined(a: str, b: str) -> int:
        if not a or not b:
            return len(a) + len(b)
        replaced = defined(a[1:], b[1:]) + (a[0] != b[0])
        return min(replaced, defined(a[1:], b) + 1, defined(a, b[1:]) + 1)

    chance = random.Random(0)
    for _ in range(60):
        a, b = ("".join(chance.choices("xyz", k=chance.randint(0, 6))) for _ in range(2))
        assert edits(list(a), list(b)) == defined(a, b)


def test_word_error_rate_counts_the_words_of_all_references() -> None:
    assert word_error_rate(["a b", "c"], ["a x", "c d"]) == 50
    assert exact_match(["a  b", "c"], ["a b", "c d"]) == 50

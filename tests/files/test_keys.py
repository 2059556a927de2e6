"""Normalised text and hashes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.files.texts import hashed, normalised


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("He said: “No!”", 'he  said "no"'),
        ("I was born in 1960.", "I was born in 1972!"),
        ("1,000 men", "12 men"),
        ("ﬁne", "Fine"),
        ("cafe\u0301", "CAFÉ"),
        ("Straße", "STRASSE"),
        ("３ Ａ", "3 a"),
    ],
)
def test_case_punctuation_and_numbers_are_ignored(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a man", "the man"), ("2010", "2011"), ("...", "!"), ("कि", "की"), ("男", "女"), ("schon", "schön")],
)
def test_texts_with_other_letters_differ(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)


@given(st.lists(st.sampled_from("abcXYZ"), min_size=1), st.data())
def test_punctuation_is_ignored_anywhere(letters: list[str], data: st.DataObject) -> None:
    marks = [data.draw(st.sampled_from(["", " ", ", ", "—", "'", "»"])) for _ in letters]
    text = "".join(letter + mark for letter, mark in zip(letters, marks, strict=True))
    assert normalised(text) == "".join(letters).lower()


@given(st.text(), st.text())
def test_only_equal_texts_have_equal_hashes(one: str, other: str) -> None:
    assert (hashed(one) == hashed(other)) == (one == other)
    assert 0 <= hashed(one) < 2**64

"""Ranges of characters of tokens."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.translation.token_ranges import align_characters, token_ranges


def ranges(tokens: str, text: str) -> list[str]:
    return [text[start:end] for start, end in token_ranges(tokens.split(), text)]


def test_a_token_stands_for_its_characters() -> None:
    assert ranges("▁He llo ▁ world .", "Hello world.") == ["He", "llo", "", "world", "."]
    assert ranges("▁a ▁ b", "  a   b ") == ["a", "", "b"]


def test_bytes_have_the_range_of_their_character() -> None:
    assert ranges("▁ <0xE6> <0xB1> <0x89> 字 <0xF0><x", "汉字<0xF0><x") == ["", "汉", "汉", "汉", "字", "<0xF0><x"]
    assert token_ranges(["▁a", "<0xE6>", "b"], "a\ufffdb") == [(0, 1), (1, 2), (2, 3)]


def test_white_space_may_differ() -> None:
    assert ranges("▁One. ▁Two. ▁三。 四。", "One.\n\nTwo. 三。四。") == ["One.", "Two.", "三。", "四。"]
    assert ranges("▁a b", "a b") == ["a", "b"]


def test_a_token_that_masks_a_part_of_the_text_has_its_range() -> None:
    assert ranges("▁See ▁<m0> ▁for ▁more .", "See http://a.b/c for more.") == [
        *("See", "http://a.b/c", "for", "more", ".")
    ]
    assert ranges("▁<m0> ▁and ▁<m1>", "x y and z") == ["x y", "and", "z"]
    assert ranges("▁a <m0>", "a") == ["a", ""]
    assert ranges("<s> ▁a </s>", "a b") == ["", "a", ""]


@given(st.text(alphabet=st.sampled_from("babo dego▁\ue011se ab.,汉😀\u0301\u200d\t<0xE6>éß\xa0"), max_size=40))
def test_the_tokens_of_any_text_are_in_order_and_cover_it(toy_tokenizer: Any, text: str) -> None:
    ids = toy_tokenizer.encode(text)
    places = token_ranges(toy_tokenizer.pieces(ids), text)
    assert len(places) == len(ids)
    covered = {index for start, end in places for index in range(start, end)}
    assert {index for index, letter in enumerate(text) if not letter.isspace()} <= covered
    assert places == sorted(places)
    assert all(0 <= start <= end <= len(text) for start, end in places)
    if not {"▁", "\ue011"} & set(text):  # these are written as two characters, which may be in two tokens
        for token, (start, end) in zip(ids, places, strict=True):
            piece = toy_tokenizer.decode([token])
            assert not piece or "".join(text[start:end].split()) == "".join(piece.split())


@pytest.mark.parametrize("tokens", [["▁x"] * 50_000, ["▁a", "<0xE6>"] * 25_000, ["q"] * 50_000])
def test_tokens_of_another_text_take_linear_time(tokens: list[str]) -> None:
    """Quadratic time would be minutes."""
    assert len(token_ranges(tokens, "ab " * 50_000)) == 50_000


def test_alignment_of_characters() -> None:
    pairs = align_characters([(0, 1), (2, 3), (3, 4)], ["▁B", "C", "▁", "▁A"], "BC A", [1, 2, 0, 0])
    assert pairs == [((2, 3), (0, 1)), ((3, 4), (1, 2)), ((0, 1), (3, 4))]
    assert align_characters([(0, 1)], ["▁A"], "A", []) == []


def test_capitals_may_differ() -> None:
    pieces = ["▁Der", "▁Fu", "ß", "▁schläft", "."]
    expected = token_ranges(pieces, "Der Fuß schläft.")
    assert token_ranges(pieces, "DER FUẞ SCHLÄFT.") == expected

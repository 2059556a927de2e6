"""Splitting long texts: only white space is lost, the order stays, and every chunk fits."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.text.chunks import split_long


def split(text: str, limit: int) -> list[str]:
    return split_long(text, lambda part: len(part) <= limit)


def test_a_text_that_fits_is_not_changed() -> None:
    assert split("  One. Two.  ", 99) == ["  One. Two.  "]


def test_a_chunk_has_as_many_sentences_as_fit() -> None:
    assert split("One two. Three! Four? Five.", 16) == ["One two. Three!", "Four? Five."]


def test_a_sentence_that_does_not_fit_is_split_between_words() -> None:
    assert split("Short. This one is far too long. Short.", 12) == [
        "Short.",
        "This one is",
        "far too",
        "long.",
        "Short.",
    ]


def test_a_word_that_does_not_fit_is_split_anywhere() -> None:
    assert split("ab cdefghij kl", 4) == ["ab", "cdef", "ghij", "kl"]


def test_ends_of_sentences_in_other_scripts_are_recognised() -> None:
    assert split("今天 天气 好。 明天 也 好！ 后天", 9) == ["今天 天气 好。", "明天 也 好！", "后天"]


@pytest.mark.parametrize("text", ["one two three " * 50, "x" * 500, "a.b.c." * 90, "\n\n".join(["some lines"] * 40)])
def test_every_chunk_of_a_long_text_fits(text: str) -> None:
    chunks = split(text, 20)
    assert all(0 < len(chunk) <= 20 for chunk in chunks)
    assert "".join("".join(chunks).split()) == "".join(text.split())


@example(" a", 1)
@example("a. b. ", 2)
@given(st.text(st.sampled_from(list("ab.! \n\t。汉😀")), max_size=60), st.integers(min_value=1, max_value=12))
def test_no_character_but_white_space_is_lost_or_moved_and_every_chunk_fits(text: str, limit: int) -> None:
    chunks = split(text, limit)
    assert "".join("".join(chunks).split()) == "".join(text.split())
    assert all(len(chunk) <= limit for chunk in chunks)


@given(st.text(st.sampled_from(list("ab. ")), min_size=1, max_size=60), st.integers(min_value=1, max_value=12))
def test_chunks_are_in_the_order_of_the_text(text: str, limit: int) -> None:
    end = 0
    for chunk in split(text, limit):
        end = text.index(chunk, end) + len(chunk)


def test_no_chunk_is_only_white_space() -> None:
    chunks = split(" " * 30 + "hello" + "\n" * 30 + "world" + " " * 30, 6)
    assert [chunk.strip() for chunk in chunks] == ["hello", "world"]


def test_a_text_that_never_fits_is_split_into_characters() -> None:
    assert split_long("abc", lambda part: False) == ["a", "b", "c"]


def test_a_very_long_text_is_tested_only_a_few_times() -> None:
    read = 0

    def fits(text: str) -> bool:
        nonlocal read
        read += len(text)
        return len(text) <= 100

    assert split_long("x" * 20_000, fits) == ["x" * 100] * 200
    assert read < 50 * 20_000

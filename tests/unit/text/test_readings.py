"""Abbreviations as the words that models know."""

import pytest

from transduce.text.readings import ABBREVIATION, Readings, _tables
from transduce.text.symbols import SLOTS

WORDS = {word for table in _tables()["en"].values() for reading in table.values() for word in reading.split()}
PIECES = {f"▁{word}" for word in WORDS}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The meeting is on Mon., Jan. 5.", "The meeting is on Monday, January 5."),
        ("Open from 7 Dec. to Sept. 2019.", "Open from 7 December to September 2019."),
        ("See p. 12, Fig. 3 and pp. 4-5.", "See page 12, figure 3 and pages 4-5."),
        (f"See fig. {SLOTS[0]}.", f"See figure {SLOTS[0]}."),
        ("Fig. 3 shows it.", "Figure 3 shows it."),
        ("Gen. Lee met Sen. Obama.", "General Lee met Senator Obama."),
        ("Germany vs. France, a.k.a. the final", "Germany against France, also known as the final"),
        ("The sun. He sat. In the gen. sense, oct. and Dec.", "The sun. He sat. In the gen. sense, oct. and Dec."),
        ("x.p. 12 and e.g. 5", "x.p. 12 and e.g. 5"),
    ],
)
def test_abbreviations_are_read_as_words(text: str, expected: str) -> None:
    assert Readings("en", PIECES).read(text) == expected
    assert Readings("en-GB", PIECES).read(text) == expected
    assert ABBREVIATION.search(text) or text == expected


def test_only_in_their_language_and_with_words_of_the_vocabulary() -> None:
    text = "It opened in Sept. 2019."
    for language, pieces in (("de", PIECES), (None, PIECES), ("en", {"▁September", "▁page"})):
        assert Readings(language, pieces).read(text) == text

"""Sentences in capitals and in title case, and the capitals that a vocabulary finds likely."""

import pytest

from transduce.translation.stages.truecase import in_capitals, shape_of, truecase
from transduce.translation.text import Span

PIECES = ["where", "is", "Tom", "tom", "ich", "Haus"]
"""A vocabulary of whole words, the most frequent first; any other word has a piece for every letter."""


def encode(text: str) -> list[int]:
    return [PIECES.index(text)] if text in PIECES else [100] * len(text)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("WHERE IS THE STATION?", "capitals"),
        ("STOP!", "capitals"),
        ("ПРИВЕТ, КАК ДЕЛА", "capitals"),
        ("NATO", None),  # an abbreviation
        ("USA.", None),
        ("JOHN SMITH", None),
        ("Where is the station?", None),
        ("Where Is The Station?", "title"),
        ("NSA blames an error", None),
        ("Tony Abbott and Bridget", None),
        ("Das Haus hat Türen.", None),  # German nouns
        ("东京是日本的首都", None),
        ("1, 2, 3!", None),
        ("", None),
    ],
)
def test_shapes(text: str, shape: str | None) -> None:
    assert shape_of(text) == shape


def test_spans_that_are_kept_do_not_count() -> None:
    text = "WRITE TO bob@example.com NOW"
    assert shape_of(text) is None
    assert shape_of(text, [Span(9, 24)]) == "capitals"


def test_words_get_the_capitals_that_the_vocabulary_knows() -> None:
    assert truecase("WHERE IS TOM?", [], encode) == "Where is Tom?"
    assert truecase("ICH SEHE DAS HAUS", [], encode) == "Ich Sehe Das Haus"  # unknown words are capitalized
    assert truecase("IS TOM'S x@Y.DE 1ST", [Span(9, 15)], encode) == "Is Tom's x@Y.DE 1St"


def test_lengths_never_change() -> None:
    for text in ("İSTANBUL IS WHERE?", "STRAẞE", "ŉ ẞ ﬁ"):
        assert len(truecase(text, [], encode)) == len(text)
        assert len(in_capitals(text.lower())) == len(text.lower())
    assert in_capitals("Straße, wo?") == "STRAẞE, WO?"

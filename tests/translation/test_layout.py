"""Tabs, and the marks of lists, headings and quotations."""

import pytest

from transduce.translation.sentences import Sentence
from transduce.translation.stages.split import split_layout


@pytest.mark.parametrize("language", ["de", None])
def test_an_ordinal_is_no_mark_of_a_list(language: str | None) -> None:
    lines = ["1. Mai", "20. Jahrhundert", "2. deutsche Liga", "1) Mai", "3. Tür öffnen"]
    parts = [list(split_layout([Sentence(line, "")], language)) for line in lines]
    assert [len(some) for some in parts] == [1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "text",
    [
        "- " * 100_000 + "x",
        "x" + "\t" * 200_000 + "y",
        "x" + " <br>" * 40_000,
        "word " * 50_000 + "x",
        "a" + " " * 200_000 + "b",
        "( | " * 60_000,
    ],
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    """Quadratic time would take minutes."""
    parts = split_layout([Sentence(text, "")])
    assert "".join(part.text + part.separator for part in parts) == text

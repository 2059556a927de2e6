"""Tabs, and the marks of lists, headings and quotations."""

import pytest

from transduce.translation.sentences import Sentence, split_sentences
from transduce.translation.stages.split import split_layout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- Milk", ["-", "Milk"]),
        ("# Heading", ["#", "Heading"]),
        ("> * [ ] Buy it.", ["> * [ ]", "Buy it."]),
        ("• One. Two.", ["•", "One.", "Two."]),
        ("List:\n  - milk\n\n  - eggs", ["List:", "-", "milk", "-", "eggs"]),
        ("Name:\tTom \t\t- 5", ["Name:", "Tom", "-", "5"]),
        ("One<br>two <br /> <BR/> three", ["One", "two", "three"]),
        ("<br>one<br>", ["<br>one<br>"]),
        (r"\nOne.\n\nTwo\tThree\nu\n", [r"\nOne.", "Two", r"Three\nu\n"]),
        ("a - b", ["a - b"]),
        ("-5 degrees", ["-5 degrees"]),
        ("#tag", ["#tag"]),
        ("-", ["-"]),
        ("- -", ["-", "-"]),
        ("1. One", ["1.", "One"]),
        (
            "- 12) «One» (a) two\nIV. three\n(b) Four. 5. six",
            ["-", "12)", "«One» (a) two", "IV.", "three", "(b)", "Four.", "5. six"],
        ),
        ("1. 5 apples, 2.5, No. 5 here", ["1. 5 apples, 2.5, No. 5 here"]),
        ("Home | About us · It rains. | 5 |", ["Home", "|", "About us", "·", "It rains.", "|", "5", "|"]),
        ("| P(A | B) |x| a|b", ["|", "P(A | B) |x| a|b"]),
        ("|", ["|"]),
    ],
)
def test_lines_are_split(text: str, expected: list[str]) -> None:
    parts = list(split_layout(split_sentences(text, "en"), "en"))
    assert [part.text for part in parts] == expected
    assert "".join(part.text + part.separator for part in parts) == text


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

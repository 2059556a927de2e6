"""Abbreviations are expanded to words that models know; the rules have examples of each language."""

import pytest

from transduce.tokenizers.symbols import SLOTS
from transduce.translation.rules import languages, rules_of
from transduce.translation.stages.normalize import Expansions
from transduce.translation.text import Text


def words_of(language: str) -> set[str]:
    tables = [table for place, table in rules_of(language).get("expansions", {}).items() if place != "examples"]
    return {f"▁{word}" for table in tables for full in table.values() for word in full.split()}


PIECES = set[str]().union(*map(words_of, languages()))


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        (["en"], f"See fig. {SLOTS[0]}.", f"See figure {SLOTS[0]}."),
        (["en-GB"], "The meeting is on Mon., Jan. 5.", "The meeting is on Monday, January 5."),
        (["de", "fr"], "im Sept. 2019, en sept. 2019", "im September 2019, en septembre 2019"),
        (["de", "fr"], "SEPT. 2019", "SEPT. 2019"),  # German or French
        (["de"], "It opened on Mon., Oct. 5.", "It opened on Mon., Oct. 5."),
        ([], "It opened on Mon., Oct. 5.", "It opened on Mon., Oct. 5."),
    ],
)
def test_abbreviations_are_expanded_in_their_language(source: list[str], text: str, expected: str) -> None:
    assert Expansions(source, PIECES).expand(Text.of(text)).characters == expected


@pytest.mark.parametrize("pieces", [{"▁October", "▁page"}, words_of("de")])
def test_only_with_words_of_the_vocabulary(pieces: set[str]) -> None:
    text = "It opened on Mon., Oct. 5."
    assert Expansions(["en"], pieces).expand(Text.of(text)).characters == text

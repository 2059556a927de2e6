"""Abbreviations are expanded to words that models know."""

import pytest

from transduce.tokenizers.symbols import SLOTS
from transduce.translation.stages.normalize import Expansions, _tables
from transduce.translation.text import Text


def words_of(language: str) -> set[str]:
    expansions = (full for table in _tables()[language].values() for full in table.values())
    return {f"▁{word}" for full in expansions for word in full.split()}


PIECES = set[str]().union(*map(words_of, _tables()))
ENGLISH = [
    ("The meeting is on Mon., Jan. 5.", "The meeting is on Monday, January 5."),
    ("Open from 7 Dec. to Sept. 2019.", "Open from 7 December to September 2019."),
    ("It opened in sept. 2019.", "It opened in September 2019."),  # in capitals before
    ("See p. 12, Fig. 3 and pp. 4-5.", "See page 12, figure 3 and pages 4-5."),
    (f"See fig. {SLOTS[0]}.", f"See figure {SLOTS[0]}."),
    ("Fig. 3 shows it.", "Figure 3 shows it."),
    ("Gen. Lee met Sen. Obama.", "General Lee met Senator Obama."),
    ("Germany vs. France, a.k.a. the final", "Germany against France, also known as the final"),
    ("The sun. He sat. In the gen. sense, oct. and Dec.", "The sun. He sat. In the gen. sense, oct. and Dec."),
    ("x.p. 12 and e.g. 5", "x.p. 12 and e.g. 5"),
]
GERMAN_OR_FRENCH = [
    ("Er kommt am Mo., den 5. Jan. 2020.", "Er kommt am Montag, den 5. Januar 2020."),
    ("Im 19. Jh. und im Sept. 2019, S. 12", "Im 19. Jahrhundert und im September 2019, Seite 12"),
    ("Tel.: 030 1234567", "Telefon: 030 1234567"),
    ("le lun. 5 janv. 2020 et en sept. 2019", "le lundi 5 janvier 2020 et en septembre 2019"),
    ("Voir p. 12, env. 5 kg.", "Voir page 12, environ 5 kg."),
    ("Le 14 juil. est férié.", "Le 14 juillet est férié."),
    ("SEPT. 2019", "SEPT. 2019"),
]


@pytest.mark.parametrize(
    ("languages", "text", "expected"),
    [
        *((["en"], *pair) for pair in ENGLISH),
        *((["en-GB"], *pair) for pair in ENGLISH[:1]),
        *((["de", "fr"], *pair) for pair in GERMAN_OR_FRENCH),
    ],
)
def test_abbreviations_are_expanded(languages: list[str], text: str, expected: str) -> None:
    assert Expansions(languages, PIECES).expand(Text.of(text)).characters == expected


def test_only_in_their_language_and_with_words_of_the_vocabulary() -> None:
    text = "It opened on Mon., Oct. 5."
    for languages, pieces in (
        (["de"], PIECES),
        ([], PIECES),
        (["en"], {"▁October", "▁page"}),
        (["en"], words_of("de")),
    ):
        assert Expansions(languages, pieces).expand(Text.of(text)).characters == text

"""Rare characters and initialisms get the form that a vocabulary has; what it lacks is found."""

import string
from collections.abc import Sequence

import pytest

from transduce.translation.stages.normalize import Normalize, Readable, foreign_words
from transduce.translation.text import Context, Text


def normalized(text: str, vocabulary: Sequence[str]) -> str:
    return Normalize(Readable(lambda: vocabulary)).apply(Text.of(text), Context()).characters


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I live in 東京 now.", ["東京"]),
        ("Привет, мой друг! Tom said: да.", ["Привет, мой друг", "да"]),
        ("Αθήνα123 (Ελλάδα)", ["Αθήνα123 (Ελλάδα"]),
        ("Größe, naïve, 5 °C 😀", []),
    ],
)
def test_words_in_unknown_scripts_are_found(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in foreign_words(text, {"LATIN"})] == words
    assert foreign_words(text, {"LATIN", "CJK", "CYRILLIC", "GREEK"}) == []


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Mr. Yıldız met Đặng Đức in İzmir.", ["Yıldız", "Đặng Đức", "İzmir"]),
        ("Größe, GRÖSSE, 5 € and $5", []),  # capitals of known letters
        ("10⁵ x² H₂O", ["10⁵ x² H₂O"]),
        ("© 2024, see § 12 → A ≠ B†", ["©", "§", "→", "≠", "†"]),
        ("The sign says: ¿Where? ¡Here!", ["¿", "¡"]),
        ("Acme™ and big-city® (R)", ["Acme™", "big-city®"]),
        ("The e\u0301lan of the \ufb01le:\xa0¿what\u200b´s up‑to?", ["¿"]),  # accents, ligatures, spaces, punctuation
        ("Α and Βeta", ["Α", "Βeta"]),  # Greek letters, which are known, but no Greek words
    ],
)
def test_words_and_symbols_that_the_vocabulary_lacks_are_found(text: str, spans: list[str]) -> None:
    readable = Readable(lambda: [*string.printable, *"äöü\xdf\u20acΑΒ", "▁the", "<0xC2>"])
    assert [text[start:end] for start, end in readable.unreadable(text)] == spans


def test_accents_and_ligatures_that_the_vocabulary_lacks_get_their_usual_form() -> None:
    text = "Cafe\u0301 \ufb01nal x\u0302 \ufb03 well\u2011known 5\u2032 \u2015 soft\xadware"
    usual = "Café final x\u0302 ffi well-known 5' \u2015 software"  # there is no other dash
    assert normalized(text, [*string.printable, "é"]) == usual
    assert normalized(text, [*string.printable, *text]) == text


def test_letters_of_a_script_without_spaces_are_left_to_the_model() -> None:
    readable = Readable(lambda: ["東京", *("東" + letter for letter in "一二三四五六七八九十百千万日月火水木金土")])
    assert readable.unreadable("東京鷗 →") == [(4, 5)]


def test_quotation_marks_that_point_inwards_get_their_usual_form() -> None:
    text = "»Nein«, (›ja.‹) « oui » ou «non», «» »"
    marks = [*string.printable, *"„“‚‘«»‹›"]
    assert normalized(text, marks) == "„Nein“, (‚ja.‘) « oui » ou «non», «» »"
    assert normalized(text, [*string.printable, *"«»‹›"]) == text


def test_initialisms_keep_their_full_stops_if_the_vocabulary_lacks_them() -> None:
    assert normalized("The U.K. left.", [*string.printable, "▁U"]) == "The U.K. left."

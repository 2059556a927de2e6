"""The script of a letter, and words and symbols that a model cannot read."""

import string

import pytest

from transduce.files.scripts import script
from transduce.translation.readable_text import ReadableText, foreign_words, known_scripts


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("aZéßạＡ", "LATIN"),
        ("яЖ", "CYRILLIC"),
        ("あアーｱ", "KANA"),
        ("漢汉々", "CJK"),
        ("한ㄱ", "HANGUL"),
        ("कि", "DEVANAGARI"),
        ("กั", "THAI"),
        ("ع", "ARABIC"),
        ("1 .,-\u0301\ufe0f\ud7ff😀", ""),
    ],
)
def test_letters_and_marks_have_a_script(letters: str, expected: str) -> None:
    assert {script(char) for char in letters} == {expected}


def test_a_script_is_known_if_the_vocabulary_has_words_of_it() -> None:
    russian = [f"▁д{letter}" for letter in "абвгдежзийклмнопрсту"]
    greek_letters = ["▁" + letter for letter in "αβγδεζηθικλμνξοπρστυ"]
    assert known_scripts(["▁ab", *russian, *greek_letters, "東京"]) == {"LATIN", "CYRILLIC"}


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
        ("Acme™ and big-city® (R)", ["Acme™", "big-city®"]),
        ("The e\u0301lan of the \ufb01le:\xa0¿what\u200b´s up‑to?", []),  # accents, ligatures, spaces, punctuation
        ("Α and Βeta", ["Α", "Βeta"]),  # Greek letters, which are known, but no Greek words
    ],
)
def test_words_and_symbols_that_the_vocabulary_lacks_are_found(text: str, spans: list[str]) -> None:
    readable = ReadableText([*string.printable, *"äöü\xdf\u20acΑΒ", "▁the", "<0xC2>"])
    assert [text[start:end] for start, end in readable.unreadable(text)] == spans


def test_accents_and_ligatures_that_the_vocabulary_lacks_get_their_usual_form() -> None:
    text = "Cafe\u0301 \ufb01nal x\u0302 \ufb03 well\u2011known 5\u2032 \u2015 soft\xadware"
    usual = "Café final x\u0302 ffi well-known 5' \u2015 software"  # there is no other dash
    assert ReadableText([*string.printable, "é"]).usual_form(text) == usual
    assert ReadableText([*string.printable, *text]).usual_form(text) == text


def test_letters_of_a_script_without_spaces_are_left_to_the_model() -> None:
    readable = ReadableText(["東京", *("東" + letter for letter in "一二三四五六七八九十百千万日月火水木金土")])
    assert readable.unreadable("東京鷗 →") == [(4, 5)]


def test_quotation_marks_that_point_inwards_get_their_usual_form() -> None:
    text = "»Nein«, (›ja.‹) « oui » ou «non», «» »"
    marks = [*string.printable, *"„“‚‘«»‹›"]
    assert ReadableText(marks).usual_form(text) == "„Nein“, (‚ja.‘) « oui » ou «non», «» »"
    assert ReadableText([*string.printable, *"«»‹›"]).usual_form(text) == text


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("The U.K. left the E.U., not the U.N.", "The UK left the EU, not the UN."),
        ("(in the U.K.) U.K.-based, the U.S.'s", "(in the UK) UK-based, the US's"),
        ("The U.S.A. and the U.S.S.R. met.", "The USA and the USSR met."),
        ("U.K.", "UK"),
        ("U.S.", "USA"),
        ("J.K. Rowling, E.U.A., U.S.Steel, C.U.K.", "J.K. Rowling, E.U.A., U.S.Steel, C.U.K."),
    ],
)
def test_names_of_initials_are_read_without_full_stops(text: str, usual: str) -> None:
    assert ReadableText([*string.printable, "▁UK"]).usual_form(text) == usual
    assert ReadableText([*string.printable, "▁U"]).usual_form(text) == text

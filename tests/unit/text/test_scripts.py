"""The script of a letter, and words in unknown scripts."""

import pytest

from transduce.text.scripts import foreign_words, known_scripts, script


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

"""The script of a letter."""

import pytest

from transduce.files.scripts import known_scripts, script


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

"""The script of a letter."""

import pytest

from transduce.text.scripts import script


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

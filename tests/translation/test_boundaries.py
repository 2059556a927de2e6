"""The boundaries of Latin, Greek and Cyrillic text are those of ICU."""

import re
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.translation import boundaries as european_boundaries
from transduce.translation.boundaries import boundaries
from transduce.translation.boundaries import european_boundaries as without_icu

KINDS = ("sentence", "word", "character")
CHARACTERS = [
    chr(code)
    for code in [*range(0x3000), 0xFFFD, *range(0x1F000, 0x1FB00)]
    if european_boundaries._SIMPLE.fullmatch(chr(code)) and unicodedata.category(chr(code)) != "Cn"
]
PIECES = [
    *"aäZÉßλΩжЖ01. !?,;:-–—'\"’“”«»()[]_/@\n\r\t\u00a0\u202f\u2009·…",
    *("\r\n", "...", "?!", ". ", '." ', "z. B.", "3.5", "U.S.", "it's", "❤️", "👍🏽", "👩‍👩‍👧", "🇩🇪", "🇫🇷", "→", "😀"),
]


def by_icu(kind: Any, text: str, monkeypatch: pytest.MonkeyPatch, language: str = "en") -> list[int]:
    with monkeypatch.context() as patch:
        patch.setattr(european_boundaries, "european_boundaries", lambda *_: None)
        return boundaries(kind, text, language)


@pytest.mark.parametrize("kind", KINDS)
def test_every_character_has_the_class_that_icu_gives_it(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(CHARACTERS) > 3000
    contexts = "a{0}b\n1{0}2\na. {0}b\na. {0}B\na{0} B\na.{0}B\na!{0}B\na! {0}B\nA{0}B. {0}\n {0} \n{0}{0}"
    for character in CHARACTERS:
        text = contexts.format(character)
        assert without_icu(kind, text) == by_icu(kind, text, monkeypatch), hex(ord(character))


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("He said “Go.” Then (he left). I.e. 5.5 kg! ok? Yes.\r\nNo")
@pytest.mark.parametrize("kind", KINDS)
def test_random_text_has_the_boundaries_of_icu(kind: Any, text: str) -> None:
    found = without_icu(kind, text)
    assert found is not None or re.search("[\ufe0f\u200d\U0001f1e6-\U0001f1ff]", text)
    if found is not None and text:
        with pytest.MonkeyPatch.context() as patch:
            assert found == by_icu(kind, text, patch)


@pytest.mark.parametrize("text", ["你好。", "مرحبا؟ نعم", "नमस्ते।", "გამარჯობა. კი", "a\u0301", "x\u200d", "e\u0000"])
def test_other_text_is_left_to_icu(text: str) -> None:
    assert without_icu("sentence", text) is None


def test_without_icu_only_other_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "The word \u4f60\u597d means hello, and \u200b is a space. Nobody sees it. Caf\u0065\u0301s are open."
    expected = boundaries("sentence", text)
    monkeypatch.setitem(sys.modules, "icu4py", None)
    assert boundaries("sentence", "Hello there! How are you? 😀") == [13, 26, 27]
    assert boundaries("word", "a b") == [1, 2, 3]
    # A few foreign characters in a long text do not matter, unless they are punctuation marks.
    assert boundaries("sentence", text) == expected
    assert len(expected) == 3
    with pytest.raises(DataError, match="needs ICU"):
        boundaries("sentence", text.replace(". ", "\u3002"))
    with pytest.raises(DataError, match=r"needs ICU: pip install 'transduce\[icu\]'"):
        boundaries("sentence", "你好。再见。")

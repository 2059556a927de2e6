"""Sentence splitting and joining; test_rules.py has sentences of many languages."""

import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.translation.sentences import Sentence, join_sentences, split_sentences


def test_codes_of_a_language() -> None:
    for code in ("de", "de-AT", "de_DE", "deu", "DE"):
        assert len(split_sentences("Er kam am 3. Mai.", code)) == 1
    assert len(split_sentences("He was 3. May was 4.", "en")) == 2
    assert len(split_sentences("He was here. So?", "not a language!")) == 2


def test_a_line_end_ends_a_sentence_and_is_kept() -> None:
    text = "first line\nsecond. Line\r\n\n  - bullet\n  1. One\u2028two"
    sentences = split_sentences(text)
    assert [part.text for part in sentences] == ["first line", "second.", "Line", "- bullet", "1. One", "two"]
    assert [part.separator for part in sentences] == ["\n", " ", "\r\n\n  ", "\n  ", "\u2028", ""]


def test_no_text_has_no_sentences() -> None:
    assert split_sentences("") == split_sentences(" \n ") == []
    assert split_sentences(".") == [Sentence(".", "")]


ODD = "aAäÄ1.!?…;\n \t\"'()[]«»“”。！「」『』（と中ก。।؟\u0301\u200d👨😀\ud800\x85\u3000I‥-—"


@example("a. \u0301B. C", "en")
@example("。「a。」", None)
@given(st.text(alphabet=st.sampled_from(ODD), max_size=60), st.sampled_from([None, "en", "de", "ja", "el"]))
def test_the_text_can_be_restored(text: str, language: str | None) -> None:
    sentences = split_sentences(text, language)
    assert "".join(part.text + part.separator for part in sentences) == text.strip()
    for part in sentences:
        assert part.text == part.text.strip()
        assert part.text
        assert not part.separator.strip()
        assert "\n" not in part.text
        assert not unicodedata.category(part.text[0]).startswith("M") or part is sentences[0] or "\n" in text


HOSTILE = [
    *(
        ".",
        " ",
        "\t",
        "!?",
        ". ",
        '"',
        '."',
        "(",
        ".)",
        "[1]",
        ".[1] ",
        "\u0301",
        "a\u200d",
        "👨\u200d",
        "Dr. ",
        "A. ",
        "1. ",
    ),
    *("z. B. ", "\n", "\r\n", "。", "「", "「。", "。」", "。“中", "…", " \u0301", "; "),
]


@pytest.mark.parametrize("function", ["split_sentences(text)", "split_long(text, lambda part: len(part) <= 100)"])
def test_hostile_text_does_not_take_quadratic_time(function: str) -> None:
    """Runs in another process, as a regular expression cannot be interrupted; quadratic time would take minutes."""
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"  # unlike a timeout, independent of other processes
        "from transduce.translation.sentences import split_sentences\n"
        "from transduce.translation.stages.split import split_long\n"
        f"for run in {HOSTILE!r}:\n"
        "    text = 'a' + run * (20_000 // len(run)) + 'b'\n"
        f"    assert ''.join(map(''.join, {function})) == text\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads_can_split_at_the_same_time() -> None:
    texts = [f"Mr. Smith {n} left. Then Dr. Brown did. 他走了。😀 好！ " * 20 for n in range(64)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(split_sentences, texts)) == [split_sentences(text) for text in texts]


def test_a_missing_icu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icu4py", None)
    with pytest.raises(DataError, match=r"pip install 'transduce\[icu\]'"):
        split_sentences("他走了。好！")
    assert [sentence.text for sentence in split_sentences("One. Two.")] == ["One.", "Two."]
    assert split_sentences("A single sentence.") == [Sentence("A single sentence.", "")]


def test_icu_is_imported_only_if_it_is_needed() -> None:
    code = "import transduce.translation.stages.split, sys; assert 'icu4py' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# Joining


@pytest.mark.parametrize(
    ("translations", "separators", "language", "joined"),
    [
        (["Hello.", "World."], ["", ""], "en", "Hello. World."),
        (["Hello.", "World."], ["  ", ""], None, "Hello. World."),
        (["你好。", "世界。"], [" ", ""], "zh", "你好。世界。"),
        (["はい。", "そう。"], [" ", ""], "ja-JP", "はい。そう。"),
        (["Hello.", "World."], [" ", ""], "ja", "Hello. World."),
        (["สวัสดี", "ผมชื่อโจ"], [" ", ""], "th", "สวัสดี ผมชื่อโจ"),
        (["네.", "예!"], [" ", ""], "ko", "네. 예!"),
        (["One.", "Two.", "三。"], ["\n\n", "\r\n  ", ""], "zh", "One.\n\nTwo.\r\n  三。"),
        (["a", "b", "c"], ["\t", "\u3000", ""], "en", "a\tb c"),
        (["One.", "", "Three."], [" ", " ", ""], "en", "One. Three."),
        (["One.", "", "Three."], [" ", "\n", ""], "en", "One.\nThree."),
        (["", "Two."], [" ", ""], "en", "Two."),
        ([], [], "en", ""),
    ],
)
def test_sentences_are_joined_as_the_language_does(
    translations: list[str], separators: list[str], language: str | None, joined: str
) -> None:
    assert join_sentences(translations, separators, language) == joined

"""Splitting long texts: only white space is lost, the order stays, and every chunk fits."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.translation.boundaries import boundaries
from transduce.translation.sentences import Sentence
from transduce.translation.stages.split import split_long


def split(text: str, limit: int, language: str | None = None) -> list[str]:
    return [part.text for part in split_long(text, lambda part: len(part) <= limit, language)]


def test_a_text_that_fits_is_not_changed() -> None:
    assert split_long("  One. Two.  ", lambda part: True) == [Sentence("One. Two.", "")]
    assert split("", 9) == split(" ", 9) == []


def test_a_chunk_has_as_many_sentences_as_fit() -> None:
    assert split("One two. Three! Four? Five.", 16) == ["One two. Three!", "Four? Five."]


def test_a_sentence_that_does_not_fit_is_split_between_words() -> None:
    assert split("Short. This one is far too long. Short.", 12) == [
        "Short.",
        "This one is",
        "far too",
        "long.",
        "Short.",
    ]


def test_a_sentence_that_does_not_fit_is_split_after_a_clause() -> None:
    assert split("When he came, she left: nobody knows why, he said.", 30) == [
        "When he came, she left:",
        "nobody knows why, he said.",
    ]
    assert split("他昨天去了北京，在图书馆看书；然后回家。", 11) == ["他昨天去了北京，", "在图书馆看书；", "然后回家。"]
    assert split("昨日、東京へ行きました、楽しかったです。", 9) == ["昨日、", "東京へ行きました、", "楽しかったです。"]


def test_words_of_scripts_without_spaces_are_not_cut() -> None:
    assert split("他昨天去北京大学图书馆看书", 6) == ["他昨天去北京", "大学图书馆", "看书"]
    for text, words in [
        ("我们明天一起学习中文", {"我们", "明天", "一起", "学习", "中文"}),
        ("私は昨日東京へ行きました", {"昨日", "東京"}),
        ("ผมไปโรงเรียนเมื่อวานนี้", {"โรงเรียน", "เมื่อ"}),
        ("ខ្ញុំទៅសាលារៀន", {"សាលារៀន"}),
        ("ຂ້ອຍໄປໂຮງຮຽນ", {"ໂຮງຮຽນ"}),
        ("ကျွန်တော်ကျောင်းသွားတယ်", {"ကျောင်း"}),
    ]:
        for limit in range(max(map(len, words)), len(text)):
            parts = split(text, limit)
            assert len(parts) > 1
            assert all(any(word in part for part in parts) for word in words), (limit, parts)


def test_punctuation_stays_with_its_word() -> None:
    for limit in range(6, 12):
        for part in split("（中文）「日本語」、good。", limit):
            assert part[0] not in "）」、。"
            assert part[-1] not in "（「"


def test_the_white_space_at_a_cut_is_the_separator() -> None:
    parts = split_long("One.  Two three\nfour. 他走了。好", lambda part: len(part) <= 6)
    assert parts == [
        Sentence("One.", "  "),
        Sentence("Two", " "),
        Sentence("three", "\n"),
        Sentence("four.", " "),
        Sentence("他走了。好", ""),
    ]


def test_the_language_decides_where_a_sentence_ends() -> None:
    assert split("He is 3. Bob is older.", 15, "en") == ["He is 3.", "Bob is older."]
    assert split("Er kam am 3. Mai.", 15, "de") == ["Er kam am 3.", "Mai."]  # between words
    assert split("Ja. Er kam am 3. Mai hier an.", 26, "de") == ["Ja.", "Er kam am 3. Mai hier an."]


def test_a_grapheme_cluster_is_not_cut() -> None:
    family, flag, accents = "👨‍👩‍👧‍👦", "🇩🇪", "e\u0301\u0323"
    assert split(family * 3 + flag * 2 + accents * 2, 8) == [family, family, family, flag * 2, accents * 2]
    assert split("क्षि" * 4, 5) == ["क्षि"] * 4
    assert split(family, 1) == [family]
    assert split("a \u0301b", 1) == ["a", " \u0301", "b"]


def test_a_cluster_longer_than_any_real_one_is_cut() -> None:
    assert split("a" + "\u0301" * 99, 10) == ["a" + "\u0301" * 9] + ["\u0301" * 10] * 9


def test_a_word_that_does_not_fit_is_split_anywhere() -> None:
    assert split("ab cdefghij kl", 4) == ["ab", "cdef", "ghij", "kl"]


def test_ends_of_sentences_in_other_scripts_are_recognised() -> None:
    assert split("今天 天气 好。 明天 也 好！ 后天", 9) == ["今天 天气 好。", "明天 也 好！", "后天"]


@pytest.mark.parametrize("text", ["one two three " * 50, "x" * 500, "a.b.c." * 90, "\n\n".join(["some lines"] * 40)])
def test_every_chunk_of_a_long_text_fits(text: str) -> None:
    chunks = split(text, 20)
    assert all(0 < len(chunk) <= 20 for chunk in chunks)
    assert "".join("".join(chunks).split()) == "".join(text.split())


@example(" a", 1)
@example("a. b. ", 2)
@example("a  \u0301", 1)
@given(st.text(st.sampled_from(list("ab.!, \n\t。，「」汉ก😀\u0301\u200d\ud800")), max_size=60), st.integers(1, 12))
def test_the_text_can_be_restored_and_every_chunk_fits(text: str, limit: int) -> None:
    parts = split_long(text, lambda part: len(part) <= limit)
    assert "".join(part.text + part.separator for part in parts) == text.strip()
    clusters = {0, *boundaries("character", text.strip())}
    start = 0
    for part in parts:
        assert part.text.strip()
        assert not part.separator.strip()
        assert start in clusters
        assert len(part.text) <= limit or len(boundaries("character", part.text)) == 1
        start += len(part.text) + len(part.separator)


@given(st.text(st.sampled_from(list("ab. ")), min_size=1, max_size=60), st.integers(min_value=1, max_value=12))
def test_chunks_are_in_the_order_of_the_text(text: str, limit: int) -> None:
    end = 0
    for chunk in split(text, limit):
        end = text.index(chunk, end) + len(chunk)


def test_no_chunk_is_only_white_space() -> None:
    chunks = split(" " * 30 + "hello" + "\n" * 30 + "world" + " " * 30, 6)
    assert [chunk.strip() for chunk in chunks] == ["hello", "world"]


def test_a_text_that_never_fits_is_split_into_characters() -> None:
    assert [part.text for part in split_long("abc", lambda part: False)] == ["a", "b", "c"]


def test_a_very_long_text_is_tested_only_a_few_times() -> None:
    read = 0

    def fits(text: str) -> bool:
        nonlocal read
        read += len(text)
        return len(text) <= 100

    assert [part.text for part in split_long("x" * 20_000, fits)] == ["x" * 100] * 200
    assert read < 50 * 20_000

"""Glossaries: which terms are found, and what is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.translation.stages.glossary import Glossary
from transduce.translation.stages.protect import Protection
from transduce.translation.text import Span


def found(terms: dict[str, str], text: str, taken: list[Span] | None = None) -> list[str]:
    return [translation for _, translation in Glossary(terms).matches(text, taken or [])]


@pytest.mark.parametrize(
    ("text", "translations"),
    [
        ("The cat sleeps.", ["Katze"]),
        ("Cats, category, tomcat", []),
        ("CAT and Cat", ["Katze", "Katze"]),
        ("apple and Apple", ["Apple Inc."]),
        ("ice cream, ice", ["Speiseeis", "Eis"]),
        ("the ice", ["Eis"]),
        ("C++ and c++", ["C plus plus"]),
        ("我爱北京。", ["Peking"]),
        ("İstanbul cat", ["Katze"]),
    ],
)
def test_terms(text: str, translations: list[str]) -> None:
    terms = {"cat": "Katze", "Apple": "Apple Inc.", "ice": "Eis", "ice cream": "Speiseeis", "C++": "C plus plus"}
    assert found(terms | {"北京": "Peking"}, text) == translations


def test_a_term_inside_a_protected_span_does_not_count_but_one_around_it_does() -> None:
    terms = {"example": "Beispiel", "max_length": "Höchstlänge", "version 1.2": "Fassung 1.2"}
    for text, expected in (
        ("See example.com, an example", ["Beispiel"]),
        ("the max_length of it", ["Höchstlänge"]),
        ("version 1.2 kg", []),
    ):
        assert found(terms, text, Protection().spans(text)) == expected


@given(
    st.dictionaries(st.text("ab ", min_size=1, max_size=4).filter(str.strip), st.just("x"), max_size=5), st.text("abA ")
)
def test_terms_are_found_as_by_definition(terms: dict[str, str], text: str) -> None:
    glossary = Glossary(terms)
    spans = [span for span, _ in glossary.matches(text)]
    places = [place for span in spans for place in span]
    assert places == sorted(places)
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            whole = not text[start - 1 : start].isalpha() if start else True
            whole = whole and not text[end : end + 1].isalpha()
            if whole and (text[start:end] in glossary.terms or text[start:end].lower() in glossary.terms):
                assert any(a < end and start < b for a, b in spans)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("cat\tKatze\n\n dog \t Hund \n", encoding="utf-8")
    assert Glossary.load(path).terms == Glossary.load(str(path)).terms == {"cat": "Katze", "dog": "Hund"}
    for line in ("cat", "cat\t", "\tKatze", "a\tb\tc"):
        path.write_text(f"dog\tHund\n{line}\n", encoding="utf-8")
        with pytest.raises(DataError, match="line 2: a line of a glossary is a term, a tab"):
            Glossary.load(path)


def test_a_term_with_two_translations_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("cat\tKatze\ncat\tKatze\ncat\tKater\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 3: cat has another translation above: Katze"):
        Glossary.load(path)


def test_terms_without_translation_and_too_many_terms_are_refused() -> None:
    with pytest.raises(DataError, match="no translation for 'a'"):
        Glossary({"a": " "})
    with pytest.raises(DataError, match="at most 100,000 terms"):
        Glossary({str(n): "x" for n in range(100_001)})

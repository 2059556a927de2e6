"""Arguments that the translator refuses, with the reason."""

from collections.abc import Callable
from typing import Any

import pytest

from transduce.errors import ConfigError, DataError
from transduce.translation.scores import score
from transduce.translation.stages.glossary import Glossary
from transduce.translation.translator import Translator


def test_a_text_instead_of_a_list_is_refused(translator: Translator) -> None:
    with pytest.raises(DataError, match="texts must be a list of texts"):
        translator.hypotheses("ba be")
    with pytest.raises(DataError, match="prefixes must be a list of texts"):
        translator.hypotheses(["ba be"], prefixes="b")
    with pytest.raises(DataError, match="sources must be a list of texts"):
        translator.score("ba be", "ba be")
    with pytest.raises(DataError, match="the system must be a list of texts"):
        score("ba be", ["ba be"])
    with pytest.raises(DataError, match="references must be a list of texts"):
        score(["ba be"], "ba be")


def test_what_is_not_a_list_is_refused(translator: Translator, texts: list[str]) -> None:
    nothing: Any = None
    with pytest.raises(DataError, match=r"^texts must be a list of texts, not of the type NoneType"):
        translator.translate(nothing)
    with pytest.raises(DataError, match=r"^sources must be a list of texts, not of the type NoneType"):
        translator.score(nothing, ["ba"])
    with pytest.raises(DataError, match=r"^references must be a list of texts, not of the type NoneType"):
        score(["ba be"], nothing)
    once: Any = iter(texts[:2])
    assert translator.translate(once) == translator.translate(texts[:2])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "is not a text, but of the type float"),
        ("ba \ud83d", "is not valid Unicode"),
        ("ba\0be", "contains a NUL character; remove it"),
    ],
)
def test_what_is_not_a_text_is_named(translator: Translator, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"^line 2 {message}"):
        translator.translate(["ba", value])
    with pytest.raises(DataError, match=f"^the prefix of line 1 {message}"):
        translator.hypotheses(["ba"], prefixes=[value])
    with pytest.raises(DataError, match=rf"^targets\[1\] {message}"):
        translator.score(["ba", "be"], ["ba", value])


@pytest.mark.parametrize(
    ("glossary", "message"),
    [
        ("g.tsv", r"of the type str; read a file with Glossary.load\(path\)"),
        ([("ba", "be")], "a glossary is a dictionary of terms and their translations, not of the type list"),
        ({"ba": 3}, "the translation of the term 'ba' is not a text, but of the type int"),
        ({"ba": "b\0"}, "the translation of the term 'ba' contains a NUL character"),
        ({3: "ba"}, "a term of the glossary is not a text"),
    ],
)
def test_a_glossary_of_another_type_is_refused(translator: Translator, glossary: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        translator.translate("ba", glossary=glossary)
    with pytest.raises(DataError, match=message):
        Glossary(glossary)


@pytest.mark.parametrize("options", [{"beam": 0}, {"nbest": 5}, {"nbest": 0}, {"temperature": -1.0}, {"top_p": 0.0}])
def test_search_options_out_of_range_are_refused(translator: Translator, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        translator.translate("ba", **options)


def test_arguments_without_a_meaning_are_refused(make_translator: Callable[..., Translator]) -> None:
    with pytest.raises(ConfigError, match="long must be one of split, refuse, not 'cut'"):
        make_translator().hypotheses(["babo"], long="cut")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="patterns of protected text must be a list"):
        Translator.load(protect="babo")

"""The examples of the rules, and what holds for all of them."""

import re
import string
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from transduce.files.languages import LANGUAGE_ALIASES, base_language
from transduce.translation.checks import claims
from transduce.translation.formality import form_of_address
from transduce.translation.locale import localized, with_english_times
from transduce.translation.rules import common, languages, rules_of
from transduce.translation.sentences import Sentence, split_sentences
from transduce.translation.stages.normalize import Expansions, Normalize, Readable
from transduce.translation.stages.protect import Protection
from transduce.translation.stages.split import split_layout
from transduce.translation.text import Context, Span, Text

PROTECTION = Protection()
VOCABULARY = [*string.printable, *"„“‚‘«»‹›", "▁UK"]
WORDS = {
    f"▁{word}"
    for code in languages()
    for place, table in rules_of(code).get("expansions", {}).items()
    if place != "examples"
    for full in table.values()
    for word in full.split()
}


def check_spans(find: Callable[[str], list[Span]], example: str) -> None:
    """What is found in a text is in double brackets in the example."""
    text = re.sub("[⟦⟧]", "", example)
    assert [text[start:end] for start, end in find(text)] == re.findall("⟦(.*?)⟧", example)


def check_sentences(language: str, example: str) -> None:
    """In the example, " | " is the space between two sentences, and "|" means that there is none."""
    pieces = example.replace(" | ", " |").split("|")
    expected = [Sentence(piece.rstrip(), " " if piece.endswith(" ") else "") for piece in pieces]
    text = "".join(pieces)
    assert split_sentences(text, language) == expected
    assert split_sentences(f"  {text}\n", f"{language}-XX") == expected
    if language in ("de", "fr", "ru", "el", "hi", "ar", "zh", "ja"):
        # Without a language, the abbreviations of all languages count.
        assert [sentence.text for sentence in split_sentences(text)] == [piece.rstrip() for piece in pieces]


def check_layout(text: str, *expected: str) -> None:
    segments = list(split_layout(split_sentences(text, "en"), "en"))
    assert [segment.text for segment in segments] == [*expected]
    assert "".join(segment.text + segment.separator for segment in segments) == text


def check_normalized(text: str, expected: str) -> None:
    assert Normalize(Readable(lambda: VOCABULARY)).apply(Text.of(text), Context()).characters == expected


def check_expansion(language: str, text: str, expected: str) -> None:
    assert Expansions([language], WORDS).expand(Text.of(text)).characters == expected


def check_locale(before: str, text: str, source: str, target: str, expected: str) -> None:
    assert localized(text, before, [source], target) == expected


def check_english_times(text: str, expected: str) -> None:
    assert with_english_times(Text.of(text)).characters == expected


def check_claims(language: str, text: str, expected: str) -> None:
    """Numbers in words by value, times with a colon, halves, in the order of the text."""
    found = sorted(claims(text, language, lambda word: 1), key=lambda claim: claim.span)
    values = {"time": lambda minutes: f"{minutes // 60 or 12}:{minutes % 60:02}", "number": str}
    texts = (values.get(claim.kind, lambda _, kind=claim.kind: kind)(claim.value) for claim in found)
    assert " ".join(text for text in texts if text != "negation") == expected


def check_negation(language: str, text: str, expected: bool) -> None:
    found = claims(text, language, lambda word: 1)
    assert any(claim.kind == "negation" for claim in found) is expected


def check_address(language: str, text: str, form: str) -> None:
    assert form_of_address(text, language) == (form or None)


def examples() -> Iterator[tuple[str, Callable[..., None], list[Any]]]:
    """The name of each example's rule, the check, and its arguments."""
    rules = common()
    for rule in rules["protect"]:
        for example in rule["examples"]:
            yield f"protect-{rule['kind']}", check_spans, [PROTECTION.spans, example]
    for example in rules["copy"]["examples"]:
        yield "copy", check_spans, [lambda text: PROTECTION.copied(text, PROTECTION.spans(text)), example]
    checks = {"layout": check_layout, "normalize": check_normalized, "locale": check_locale}
    for name, check in {**checks, "english_times": check_english_times}.items():
        for example in rules[name]["examples"]:
            yield name, check, example
    sentences = {code: rules_of(code)["sentences"].get("examples", []) for code in languages()} | rules["sentences"]
    for code, texts in sentences.items():
        for example in texts:
            yield f"sentences-{code}", check_sentences, [code, example]
    for code in languages():
        for example in rules_of(code).get("expansions", {}).get("examples", []):
            yield f"expansions-{code}", check_expansion, [code, *example]
        for example in rules_of(code).get("address", {}).get("examples", []):
            yield f"address-{code}", check_address, [code, *example]
        for example in rules_of(code).get("numbers", {}).get("examples", []):
            yield f"numbers-{code}", check_claims, [code, *example]
        for example in rules_of(code).get("negation", {}).get("examples", []):
            yield f"negation-{code}", check_negation, [code, *example]


@pytest.mark.parametrize(
    ("check", "arguments"), [pytest.param(check, arguments, id=name) for name, check, arguments in examples()]
)
def test_examples(check: Callable[..., None], arguments: list[Any]) -> None:
    check(*arguments)


def test_every_kind_of_protected_text_has_an_example() -> None:
    assert all(any("⟦" in example for example in rule["examples"]) for rule in common()["protect"])


def test_there_are_sentences_of_many_languages() -> None:
    names = [name for name, *_ in examples() if name.startswith("sentences-")]
    assert len(names) >= 60
    assert len({*names}) >= 30


def test_every_alias_is_a_language_with_rules_or_examples() -> None:
    known = {*languages(), *common()["sentences"]}
    assert {base_language(alias) for alias in LANGUAGE_ALIASES} <= known

"""Detection of languages, from 20 characters and more."""

import pytest

from transduce.errors import DataError
from transduce.translation.detection import AUTO, Detector
from transduce.translation.translator import Translator

TEXTS = {
    "en": ["The meeting starts at noon", "Where did you put the keys", "We should leave before it rains",
           "Nobody knew the answer", "There are three open questions", "She wrote a long letter"],
    "de": ["Die Sitzung beginnt um zwölf", "Wo hast du die Schlüssel", "Wir sollten vor dem Regen gehen",
           "Niemand wusste die Antwort", "Es gibt drei offene Fragen", "Sie schrieb einen langen Brief"],
    "fr": ["La réunion commence à midi", "Où as-tu mis les clés ?", "Nous devrions partir avant la pluie",
           "Personne ne savait répondre", "Il y a trois questions", "Elle a écrit une longue lettre"],
}  # fmt: skip


def detector(*directions: tuple[str | None, str | None]) -> Detector:
    return Detector(directions, [])


@pytest.fixture(scope="module")
def three() -> Detector:
    return detector(("en", "de"), ("en", "fr"), ("de", "en"), ("fr", "en"))


def test_the_first_20_characters_are_enough(three: Detector) -> None:
    for language, texts in TEXTS.items():
        for text in texts:
            ranking = three.rank(text[:20])
            assert ranking[0][0] == language, text
            assert {code for code, _ in ranking} == {"en", "de", "fr"}
            assert sum(probability for _, probability in ranking) == pytest.approx(1, abs=1e-3)


def test_the_source_is_one_that_has_this_target(three: Detector) -> None:
    assert three.source(TEXTS["de"][0], "en")[0] == "de"
    assert three.source(TEXTS["fr"][0], "en")[0] == "fr"
    code, probability = three.source("Halli, hallo", "fr")
    assert code == "en"  # the only source language of French
    assert probability < 0.9
    assert three.source("12 + 3", "en") == ("de", 0.0)


def test_a_text_in_the_target_language_has_this_source(three: Detector) -> None:
    for language in ("de", "fr"):
        code, probability = three.source(TEXTS[language][2], language)
        assert code == language
        assert probability >= 0.9


def test_a_text_in_a_language_without_this_target_is_an_error(three: Detector) -> None:
    with pytest.raises(DataError) as error:
        three.source(TEXTS["de"][2], "fr")
    assert str(error.value) == "the text is in German (de), which no model translates to French (fr)"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("日本語のテキストです", "Japanese (ja)"),
        ("¿Dónde está la estación de tren? No la encuentro en el mapa.", "Spanish (es)"),
    ],
)
def test_a_text_in_a_language_that_no_model_reads_is_an_error(three: Detector, text: str, language: str) -> None:
    with pytest.raises(DataError) as error:
        three.source(text, "en")
    assert str(error.value) == f"the text is in {language}, which no model translates to English (en)"


def test_more_directions_make_a_language_more_probable() -> None:
    text, pairs = "Frontier spokeswoman", [("en", "de"), ("de", "en")]
    before = dict(detector(*pairs).rank(text))
    after = dict(detector(*pairs, ("en", "de"), ("en", "de")).rank(text))
    odds = (after["en"] / after["de"]) / (before["en"] / before["de"])
    assert odds == pytest.approx(3)


def test_unknown_languages_are_not_guessed() -> None:
    assert detector((None, None)).source("Some text", "x") == (AUTO, 0.0)


def test_a_region_is_part_of_the_answer() -> None:
    assert detector(("pt-BR", "en")).rank("O gato está em cima da mesa")[0][0] == "pt-BR"


def test_a_language_is_named_only_if_it_is_certain_and_may_be_one_that_no_model_reads() -> None:
    translator = Translator.load()

    def detect(text: str) -> tuple[str | None, bool]:
        found = translator.detect(text)
        return found.language, found.available

    for language, texts in TEXTS.items():
        assert {detect(text[:20]) for text in texts} == {(language, True)}
    for text in ("hello", "Tom", "OK", "12 + 3", "", "¿"):
        assert detect(text) == (None, True)
    assert detect("これは日本語の文章です。") == ("ja", False)
    assert detect("هذا نص باللغة العربية") == ("ar", False)
    assert detect("¿Cómo estás?") == ("es", False)
    assert detect("Привет, как дела?") == ("ru", False)
    assert detect("да") == (None, False)  # Cyrillic, but one of several languages
    assert detect("Ich wohne in Tokyo (東京).") == ("de", True)

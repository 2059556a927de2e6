"""The bundled model: its translations in four directions, its size, and its card."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from safetensors.numpy import load_file
from serving import TIMEOUT, serve_in_thread
from terminals import in_a_terminal

from transduce.errors import DataError
from transduce.models.folder import BUNDLED, read_card, read_notes
from transduce.models.weights_file import is_matrix
from transduce.translation.translator import Translator

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
QUESTION = "Where is the station?"
COPIED = "warning: line {} was copied, because the model does not read the script"


def test_it_translates_the_example_of_the_readme(transduce: Any, tmp_path: Path) -> None:
    outcome = transduce("translate", "--to", "de", QUESTION, cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "Bahnhof" in outcome.out
    assert f"`{outcome.out.strip()}`" in README


@pytest.mark.parametrize("engine", ["auto", "plain"])
@pytest.mark.parametrize(
    ("text", "word"), [("The dog is sleeping.", "Hund"), ("I am very tired today.", "müde"), ("Thank you!", "Dank")]
)
def test_it_translates_everyday_words(engine: str, text: str, word: str) -> None:
    assert word in Translator.load(engine=engine).translate(text, to="de")


@pytest.mark.parametrize(
    ("to", "text", "word"),
    [("en", "Der Hund schläft.", "dog"), ("fr", "The dog is sleeping.", "chien"), ("en", "Le chien dort.", "dog")],
)
def test_it_translates_in_its_other_directions(to: str, text: str, word: str) -> None:
    assert word in Translator.load().translate(text, to=to)


@pytest.mark.parametrize(("language", "text"), [("de", "Go home."), ("fr", "third item"), ("en", "Ouvrez la porte.")])
def test_the_numbers_of_a_list_are_kept(transduce: Any, tmp_path: Path, language: str, text: str) -> None:
    numbers = ["1.", "10.", "3)", "(4)", "- 5."]
    lines = "".join(f"{number} {text}\n" for number in numbers)
    outcome = transduce("translate", "--to", language, cwd=tmp_path, stdin=lines)
    (translation,) = {
        line.removeprefix(f"{number} ") for number, line in zip(numbers, outcome.out.splitlines(), strict=True)
    }
    assert translation[0].isalpha()


def test_it_reads_the_quotation_marks_of_german_books() -> None:
    translator, texts = Translator.load(), ["„Warum?“, fragte sie.", "‚Nein‘, sagte sie (und „Nein“)."]
    pointed = [text.translate(str.maketrans("„“‚‘", "»«›‹")) for text in texts]
    assert translator.translate(pointed, to="en") == translator.translate(texts, to="en")


def test_countries_are_not_confused(transduce: Any, tmp_path: Path) -> None:
    outcome = transduce("translate", "--to", "de", "He lives in the U.K. now.", "THE U.S. ARMY WON.", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    british, american = outcome.out.splitlines()
    assert re.search("Vereinigten Königreich|Großbritannien", british)
    assert re.search("US-ARMEE|AMERIKANISCHE ARMEE", american)


def test_a_tag_around_an_initialism_that_ends_a_text_surrounds_its_whole_translation(
    transduce: Any, tmp_path: Path
) -> None:
    outcome = transduce("translate", "--to", "de", "Welcome to the **U.K.**", "WELCOME TO THE **U.K.**", cwd=tmp_path)
    assert [line.partition("**")[2] for line in outcome.out.splitlines()] == [
        "Vereinigten Königreich!**",
        "VEREINIGTEN KÖNIGREICH!**",
    ]


@pytest.mark.parametrize(
    ("to", "text", "words"),
    [
        ("de", "It opened on Mon., Sept. 2, 2019, see p. 12.", ["Montag", "2. September", "2019", "Seite 12"]),
        ("en", "Er kommt am Mo., den 5. Jan. 2020.", ["Monday", "January", "2020"]),
        ("en", "Il vient le lun. 5 janv. 2020.", ["Monday", "January", "2020"]),
    ],
)
def test_abbreviations_are_not_misread(transduce: Any, tmp_path: Path, to: str, text: str, words: list[str]) -> None:
    outcome = transduce("translate", "--to", to, text, cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert all(word in outcome.out for word in words), outcome.out


def test_an_ellipsis_at_the_end_is_kept(transduce: Any, tmp_path: Path) -> None:
    for language in ("de", "fr"):
        outcome = transduce(
            "translate", "--to", language, cwd=tmp_path, stdin="Wait…\nOpen file…\nIt is 5 km…\nWell…\n"
        )
        assert all(line.endswith(("…", "...")) for line in outcome.out.splitlines()), outcome.out


def test_without_a_target_language_it_translates_to_its_default(transduce: Any, tmp_path: Path) -> None:
    outcome = transduce("translate", QUESTION, cwd=tmp_path)
    message = "transduce: translating en to de; for another target language, use --to (de, en, fr)\n"
    assert (outcome.code, outcome.err) == (0, message)
    assert outcome.out == transduce("translate", "--to", "de", QUESTION, cwd=tmp_path).out
    # From English there is a choice, from French there is none.
    outcome = transduce("translate", "--from", "en", QUESTION, cwd=tmp_path)
    assert outcome.err == "transduce: translating en to de; for another target language, use --to (de, fr)\n"
    outcome = transduce("translate", "--from", "fr", "Le chien dort.", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "dog" in outcome.out
    with pytest.raises(DataError, match="choose the target language"):
        Translator.load().translate(QUESTION)


@pytest.mark.parametrize(
    ("text", "language", "word"),
    [
        ("Ou est la gare?", "French (fr): translating fr to en", "station"),
        ("Wo ist der Bahnhof?", "German (de): translating de to en", "station"),
        ("Danke sehr", "German (de): translating de to en", "ank"),  # too short but for the model's own score
    ],
)
def test_a_text_in_another_of_its_languages_is_translated_from_it(
    transduce: Any, tmp_path: Path, text: str, language: str, word: str
) -> None:
    outcome = transduce("translate", text, cwd=tmp_path)
    assert (outcome.code, outcome.err) == (
        0,
        f"transduce: the text seems to be in {language}; if it is not, use --from\n",
    )
    assert word in outcome.out


@pytest.mark.parametrize(
    ("to", "text", "problem"),
    [
        (None, "Donde está la estación de tren?", "Spanish (es), which this model does not translate; it translates "),
        ("de", "駅はどこですか", "Japanese (ja), which this model does not translate; it translates "),
        ("en", "Привет, как дела?", "Russian (ru), which this model does not translate; it translates "),
        ("fr", "Wo ist der Bahnhof?", "German (de), which this model does not translate to French (fr); it "),
        ("de", "Wir gehen heute ins Kino.", "German (de) already; if it is not, use --from"),
    ],
)
def test_a_text_that_it_does_not_translate_is_refused_unless_its_language_is_named(
    transduce: Any, tmp_path: Path, to: str | None, text: str, problem: str
) -> None:
    target = ["--to", to] if to else []
    refused = transduce("translate", *target, text, "-o", "out.txt", cwd=tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(f"transduce: the text seems to be in {problem}")
    assert refused.err.count("\n") == 1
    assert not (tmp_path / "out.txt").exists()
    source = {"de": "en", "fr": "en", "en": "de"}.get(to or "", "en")
    assert transduce("translate", "--from", source, *target, text, cwd=tmp_path).code == 0


def test_names_and_short_lines_do_not_change_the_direction(transduce: Any, tmp_path: Path) -> None:
    default = "transduce: translating en to de; for another target language, use --to (de, en, fr)\n"
    for text in ("OK", "Paris", "Tom", "Computer", "John Smith", "Angela Merkel", "北京", "12", "Σ"):
        outcome = transduce("translate", text, cwd=tmp_path)
        copied = "" if text.isascii() else f"transduce: {COPIED.format(1)}\n"
        assert (outcome.code, outcome.err) == (0, default + copied), text
    lines = "OK\nParis\nEs tut mir leid.\nThe shop opens at nine.\nTom\nWhere did you put the keys?\nMerci\n"
    outcome = transduce("translate", cwd=tmp_path, stdin=lines)
    assert (outcome.code, outcome.err, outcome.out.count("\n")) == (0, default, 7)


def test_the_language_of_each_typed_line_is_detected(transduce: Any, tmp_path: Path) -> None:
    typed = "Where is the station?\nOù est la gare ?\nDonde está la estación de tren?\n".encode() + b"\x04"
    text = " ".join(in_a_terminal(transduce, "translate", cwd=tmp_path, typed=typed).split())
    assert "Bahnhof" in text
    assert "seems to be in French (fr): translating fr to en" in text
    assert "the station?" in text.split("French (fr)")[1]
    assert "seems to be in Spanish (es), which this model does not translate" in text


@pytest.fixture(scope="module")
def translate_html() -> Iterator[Callable[[str], str]]:
    """A function that translates HTML over HTTP."""
    with serve_in_thread([("en-de-fr", Translator.load())]) as (address, _):

        def translate(source: str) -> str:
            body = {"q": source, "source": "en", "target": "de", "format": "html"}
            return str(httpx.post(f"{address}/translate", json=body, timeout=TIMEOUT).json()["translatedText"])

        yield translate


def test_http_has_one_form_of_address_and_coverage_like_the_command_line() -> None:
    translator, text = Translator.load(), "Please send us your documents. Do you love me?\nDo you love me?"
    with serve_in_thread([("en-de-fr", translator)]) as (address, _):
        body = {"text": text, "to": "de", "coverage": True, "sentences": True}
        answer = httpx.post(f"{address}/v1/translate", json=body, timeout=TIMEOUT).json()
    (found,) = answer["translations"]
    expected = translator.hypotheses(text.split("\n"), to="de", confidence=True)
    assert found["outputs"][0]["text"] == "\n".join(best[0].text for best in expected)
    assert tuple(sentence["text"] for sentence in found["sentences"][1:]) == ("Lieben Sie mich?", "Liebst du mich?")
    assert found["outputs"][0]["uncovered"] == [word for best in expected for word in best[0].uncovered or []]


def test_inline_tags_surround_their_words_in_a_sentence(translate_html: Callable[[str], str]) -> None:
    german = translate_html('My <b>brother</b> wants to <a href="#">buy</a> a new house.')
    plain = re.sub("<.*?>", "", german)
    assert plain == Translator.load().translate("My brother wants to buy a new house.", to="de")
    match = re.fullmatch(r'[^<>]+<b>([\w ]+)</b>[^<>]*<a href="#">([\w ]+)</a>\.', german)
    assert match, german
    assert match[1] == "Bruder"
    assert match[2].endswith("kaufen")


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("<p>The <b>red house</b> is old. I like <i>the garden</i>.</p>", ["<b>rote Haus</b>", "<i>den Garten</i>."]),
        ("Yesterday, I <em>bought</em> a <u>new car</u>.", ["<em>gekauft</em>", "<u>neues Auto</u>"]),
        ("I did not see <span translate=no>Big Ben</span> today.", ["<span translate=no>Big Ben</span>"]),
        ("Where is <code>the file</code>?", ["<code>the file</code>"]),
        ("Use <code>x = 1</code> in the house.", ["<code>x = 1</code> im Haus."]),  # and nothing else of it
        ("<ul><li>The dog sleeps.<li>The <b>cat</b> sleeps.</ul>", ["<li>Der Hund", "<li>Die <b>Katze</b>"]),
    ],
)
def test_html_keeps_its_meaning(translate_html: Callable[[str], str], source: str, parts: list[str]) -> None:
    german = translate_html(source)
    for part in parts:
        assert part in german
    assert sorted(re.findall("<.*?>", german)) == sorted(re.findall("<.*?>", source))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("© 2024 Anna Schmidt. All rights reserved.", ["© 2024"]),
        ("See § 12 of the law.", ["§ 12"]),
        ("Press → to continue.", ["→"]),
        ("Windows® is a registered trademark.", ["Windows®"]),
        ("My friend Nguyễn Văn Đức lives in İzmir.", ["Nguyễn Văn Đức", "İzmir"]),
        ("H₂O is water, and 5 m² is the area.", ["H₂O", "5 m²"]),
        ("⟨x⟩ is here", ["⟨x⟩"]),  # brackets around the reserved symbols of a vocabulary
        ("Press ⟪Enter⟫ to start.", ["⟪Enter⟫"]),
        ("The film 《英雄》 is good.", ["《英雄》"]),
    ],
)
def test_characters_that_its_vocabulary_lacks_are_copied(text: str, kept: list[str]) -> None:
    german = Translator.load().translate(text, to="de")
    assert [one for one in kept if one not in german] == []


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("La fore\u0302t est tre\u0300s belle.", "La forêt est très belle."),
        ("La \ufb01n du \ufb01lm", "La fin du film"),
    ],
)
def test_accents_and_ligatures_of_other_forms_make_no_difference(text: str, same: str) -> None:
    translator = Translator.load()
    assert translator.translate(text, to="en") == translator.translate(same, to="en")


def test_it_translates_every_sentence_of_a_paragraph() -> None:
    text = (
        "My name is Tom. I live in Boston. We have a dog. He is old. On Sundays we visit our grandmother. I am happy."
    )
    german = Translator.load().translate(text, to="de")
    assert german.count(".") == text.count(".")
    for word in ("Tom", "Boston", "Hund", "alt", "Großmutter", "glücklich"):
        assert word in german


def test_an_abbreviation_does_not_end_a_sentence(transduce: Any, tmp_path: Path) -> None:
    outcome = transduce("translate", "--to", "de", "Mr. Smith met Dr. Miller. He left.", cwd=tmp_path)
    assert outcome.code == 0
    assert "Smith" in outcome.out
    assert "Miller" in outcome.out
    assert outcome.out.count("Er ") == 1


def test_the_n_best_translations_are_distinct(transduce: Any, tmp_path: Path) -> None:
    outcome = transduce("translate", "--to", "de", "--jsonl", "--nbest", "4", "The dog sleeps.", cwd=tmp_path)
    best = json.loads(outcome.out)["translations"]
    assert best[0]["text"] == "Der Hund schläft."
    assert 1 < len({translation["text"] for translation in best}) == len(best)
    assert [translation["score"] for translation in best] == sorted(
        (translation["score"] for translation in best), reverse=True
    )


def test_lines_whose_script_it_does_not_read_are_named(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Hello.\nお元気ですか。\nNguyễn 🙂 https://a.org\n", encoding="utf-8")
    outcome = transduce("translate", "--to", "de", "in.txt", cwd=tmp_path)
    assert outcome.out.splitlines() == ["Hallo.", "お元気ですか。", "Nguyễn 🙂 https://a.org"]
    assert outcome.err == f"transduce: {COPIED.format(2)}\n"


def test_it_is_small() -> None:
    files = {path.name: path.stat().st_size for path in BUNDLED.iterdir()}
    assert files.keys() == {"README.md", "model.json", "model.safetensors", "tokenizer.model"}
    assert sum(files.values()) <= 45_000_000


def test_its_matrices_are_stored_in_8_bits() -> None:
    weights = load_file(BUNDLED / "model.safetensors")
    assert {str(x.dtype) for name, x in weights.items() if is_matrix(name, x.shape)} == {"int8"}
    assert read_card(BUNDLED)["precision"] == "int8"


def test_its_card_states_data_licence_and_scores(transduce: Any, tmp_path: Path) -> None:
    notes = read_notes(BUNDLED)
    for heading in ("## Data and licence", "## Scores", "## Weaknesses"):
        assert f"\n{heading}\n" in notes
    for source in ("tatoeba.org", "CC BY 2.0 FR", "European Parliament", "Apache"):
        assert source in notes
    for test_set in ("Tatoeba", "newstest2014", "nrefs:1|"):
        assert test_set in notes.partition("## Scores")[2]
    assert notes.strip() in transduce("info", cwd=tmp_path).out


def test_the_name_of_a_file_tells_the_source_language(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("Guten Morgen.\n")
    (tmp_path / "b.en").write_text("Good morning.\n")
    assert transduce("translate", "a.de", cwd=tmp_path).out == "Good morning.\n"
    assert "the name of" not in transduce("translate", "b.en", cwd=tmp_path).err
    for words in (["a.de", "--to", "fr"], ["a.de", "b.en"]):
        outcome = transduce("translate", *words, cwd=tmp_path)
        assert "warning: the name of a.de tells de, but the text is read as en" in outcome.err
    assert "the name of" not in transduce("translate", "a.de", "--from", "en", "--to", "fr", cwd=tmp_path).err

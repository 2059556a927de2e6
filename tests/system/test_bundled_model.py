"""The bundled model: its translations from English to German, its size, and its card."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from transduce import Translator
from transduce.models.card import BUNDLED, read_card, read_notes
from transduce.models.header import is_matrix

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
QUESTION = "Where is the station?"


def test_it_translates_the_example_of_the_readme(transduce: Any, tmp_path: Path) -> None:
    outcome = transduce("translate", QUESTION, cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "Bahnhof" in outcome.out
    assert f"`{outcome.out.strip()}`" in README


@pytest.mark.parametrize("engine", ["auto", "plain"])
@pytest.mark.parametrize(
    ("text", "word"), [("The dog is sleeping.", "Hund"), ("I am very tired today.", "müde"), ("Thank you!", "Dank")]
)
def test_it_translates_everyday_words(engine: str, text: str, word: str) -> None:
    assert word in Translator.load(engine=engine).translate(text)


def test_it_translates_every_sentence_of_a_paragraph() -> None:
    text = (
        "My name is Tom. I live in Boston. We have a dog. He is old. On Sundays we visit our grandmother. I am happy."
    )
    german = Translator.load().translate(text)
    assert german.count(".") == text.count(".")
    for word in ("Tom", "Boston", "Hund", "alt", "Großmutter", "glücklich"):
        assert word in german


def test_it_is_small() -> None:
    files = {path.name: path.stat().st_size for path in BUNDLED.iterdir()}
    assert files.keys() == {"README.md", "model.json", "model.safetensors", "tokenizer.model"}
    assert sum(files.values()) <= 16_000_000


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
    for test_set in ("Tatoeba", "Europarl", "newstest2014", "nrefs:1|"):
        assert test_set in notes.partition("## Scores")[2]
    assert notes.strip() in transduce("info", cwd=tmp_path).out

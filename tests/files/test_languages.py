"""Languages: codes, directions, and what file names tell."""

import pytest

from transduce.errors import ConfigError, DataError
from transduce.files.languages import (
    choose_target,
    direction_of_entry,
    is_language_code,
    language_name,
    parse_direction,
)
from transduce.tokenizers.symbols import language_tag, mark, unescape


@pytest.mark.parametrize(
    ("files", "direction"),
    [
        (["data/train.en-de.tsv.xz"], ("en", "de")),
        (["train.en_de.jsonl"], ("en", "de")),
        (["news-commentary-v18.de-en.tsv.gz"], ("de", "en")),
        (["en-de.tsv"], ("en", "de")),
        (["en-de/train.tsv"], None),  # folders do not count
        (["train.tsv"], None),
        (["train.en-xx.tsv"], None),
        (["train.en-en.tsv"], None),
        (["en-de.fr-de.tsv"], None),
        (["a.en", "a.de"], ("en", "de")),
        (["a.en.gz", "a.de.gz"], ("en", "de")),
        (["europarl-v7.de-en.en", "europarl-v7.de-en.de"], ("en", "de")),
        (["sources.en", "distilled.de"], ("en", "de")),
        (["train_en.txt", "train_de.txt"], ("en", "de")),
        (["train.de.txt", "train.en.txt"], ("de", "en")),
        (["train.src", "train.tgt"], None),
        (["train.en", "train.tgt"], None),
    ],
)
def test_file_names_tell_the_languages_of_the_sides(files: list[str], direction: tuple[str, str] | None) -> None:
    assert direction_of_entry(files) == direction


def test_codes_have_two_or_three_letters_and_perhaps_a_region() -> None:
    assert all(map(is_language_code, ["en", "deu", "pt-BR", "zh-Hant", "es-419"]))
    assert not any(map(is_language_code, ["", "e", "EN", "english", "en-", "en-de", "en_US", "e1", "en\n"]))


def test_directions_are_written_with_a_hyphen() -> None:
    assert parse_direction("en-de") == ("en", "de")
    assert parse_direction("pt-BR-en") == ("pt-BR", "en")
    assert parse_direction("en-zh-Hant") == ("en", "zh-Hant")
    for name in ("ende", "en", "en-", "en-de-fr", "en>de", "EN-DE"):
        with pytest.raises(ConfigError, match="is not a direction"):
            parse_direction(name)


def test_the_target_is_chosen_if_there_is_no_choice() -> None:
    directions = [("en", "de"), ("en", "fr"), ("de", "en")]
    assert choose_target(directions, None, "fr") == "fr"
    assert choose_target(directions, "de", None) == "en"
    assert choose_target([("en", "de"), ("fr", "de")], None, None) == "de"
    assert choose_target([], None, None) is None
    for source, target, message in [
        (None, None, "translates to de, fr, en; choose the target language"),
        ("en", None, "translates to de, fr; choose the target language"),
        ("de", "fr", "does not translate from de to fr; it translates en to de, en to fr, de to en"),
        (None, "es", "does not translate to es"),
    ]:
        with pytest.raises(DataError, match=message):
            choose_target(directions, source, target)
    with pytest.raises(DataError, match="does not tell its languages, so de cannot be checked"):
        choose_target([], None, "de")


def test_a_marked_text_begins_with_the_tag_and_is_otherwise_the_text() -> None:
    text = f"a {language_tag('fr')} b"
    assert mark(text, "de").startswith(f"{language_tag('de')} a ")
    assert language_tag("fr") not in mark(text, "de")
    assert unescape(mark(text, "de")) == f" {text}"
    assert unescape(mark(text, None)) == text


def test_names_of_languages() -> None:
    assert [language_name(code) for code in ("de", "pt-BR", "xx", "auto")] == ["German", "Portuguese", "xx", "auto"]

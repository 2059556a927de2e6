"""Whether an argument of the command line is a file, text, or a typo."""

from pathlib import Path

import pytest

from transduce.cli.inputs import as_input, lines_of
from transduce.errors import DataError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.en").write_text("one\ntwo\n")
    (tmp_path / "a long name").write_text("three\n")
    (tmp_path / "word").write_text("four\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize("word", ["in.en", "./in.en", "a long name", "word", "-", "folder", "/dev/null"])
def test_an_existing_path_is_a_file(word: str) -> None:
    assert as_input(word) == Path(word)


@pytest.mark.parametrize(
    "word",
    [
        "Where is the station?",
        "Open in.txt and/or out.txt.",
        "Hello",
        "Hello.",
        "Hello...",
        "...",
        "$12.50",
        "4.5",
        "",
        "Wo\u00a0bist\u3000du?",
        "x" * 5000,
        "see a/b " * 600,
    ],
)
def test_an_argument_with_spaces_or_unlike_a_path_is_text(word: str) -> None:
    assert as_input(word) == word


@pytest.mark.parametrize("word", ["nothing.txt", "folder/nothing", "/nothing", "in.en.gz", "a/b", "x/" * 3000])
def test_the_path_of_a_missing_file_is_refused(word: str) -> None:
    with pytest.raises(DataError, match=r"no such file; if it is text to translate, pipe it in: echo "):
        as_input(word)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DataError, match="is not UTF-8"):
        as_input("caf\udce9 noir")


def test_files_and_texts_are_read_in_order() -> None:
    words = ["in.en", "Where is it?", "a long name"]
    assert list(lines_of([as_input(word) for word in words])) == ["one", "two", "Where is it?", "three"]

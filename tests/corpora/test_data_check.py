"""`transduce data check` as a user runs it: files, report, exit codes, errors."""

import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest
from toy_run import write_lines

from transduce.corpora.demo.corpus import demo_corpus
from transduce.files.pairs import Pair


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a clean corpus as .tsv and as two files, one that leaks, and one with a missing line."""
    folder = tmp_path_factory.mktemp("corpora")
    demo = demo_corpus(train=2_000, valid=50, test=50)
    write_tsv(folder / "train.tsv", demo.train)
    write_tsv(folder / "valid.tsv", demo.valid)
    write_tsv(folder / "leaky.tsv", [*demo.train, demo.valid[4]])
    for name, pairs in (("train", demo.train), ("valid", demo.valid)):
        for side, language in enumerate(("en", "de")):
            write_lines(folder / f"{name}.{language}", [pair[side] for pair in pairs])
    write_lines(folder / "shifted.de", [pair[1] for n, pair in enumerate(demo.train) if n != 800] + ["Ende."])
    return folder


def write_tsv(path: Path, pairs: list[Pair]) -> None:
    write_lines(path, ["\t".join(pair) for pair in pairs])


def test_a_clean_corpus_is_fit(transduce: Any, folder: Path) -> None:
    outcome = transduce("data", "check", "train.tsv", "--against", "valid.tsv", cwd=folder)
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[:2] == ["train.tsv: 2,000 pairs", "valid.tsv: 0 of 50 pairs have a side that is also in the corpus"]
    assert lines[-1].startswith("fit to train on")


def test_the_page_of_charts_shows_lengths_scripts_languages_and_repetition(
    transduce: Any, folder: Path, tmp_path: Path
) -> None:
    page = tmp_path / "check.html"
    words = ["train.tsv", "train.tsv", "--against", "valid.tsv", "--charts", page]
    outcome = transduce("data", "check", *words, cwd=folder)
    assert outcome.code == 0, outcome.err
    assert f"open {page} in a browser" in outcome.err.splitlines()[-1]
    text = page.read_text(encoding="utf-8")
    for title in ("Length in characters", "Scripts of the target", "Languages", "Alignment", "Repetition", "Leaks"):
        assert f"<b>{title}" in text
    assert re.search(r'<td>Latin<td class="count">[\d,]+<td class="count">100.0%', text)
    assert re.search(r'<td>that occurred before, word for word<td class="count">2,000<td class="count">50.0%', text)
    assert "http" not in text.replace("http://www.w3.org", "")
    refused = transduce("data", "check", "train.tsv", "--charts", "train.tsv", cwd=folder)
    assert (refused.code, refused.out) == (2, "")


def test_a_leak_is_shown_with_both_places_and_the_exit_code_is_1(transduce: Any, folder: Path) -> None:
    outcome = transduce("data", "check", "leaky.tsv", "--against", "valid.tsv", cwd=folder)
    assert outcome.code == 1
    assert "1 pair (0.05%) whose source and translation are a pair of the --against text\n" in outcome.out
    assert "  leaky.tsv, line 2001 (same as valid.tsv, line 5)\n" in outcome.out
    assert outcome.out.splitlines()[-1].startswith(
        "not fit to train on: text of the --against set is in 1 of its pairs"
    )


def test_a_leak_is_found_if_the_columns_are_the_other_way_round(transduce: Any, folder: Path, tmp_path: Path) -> None:
    pairs = demo_corpus(train=2_000, valid=50, test=50)
    source, target = pairs.train[7]
    new = [("a new source", "ein neues Ziel"), ("a new source", source), (target, "ein neues Ziel")]
    write_tsv(tmp_path / "swapped.tsv", [*[(target, source) for source, target in pairs.train[:3]], *new])
    outcome = transduce("data", "check", folder / "train.tsv", "--against", "swapped.tsv", cwd=tmp_path)
    assert outcome.code == 1
    assert "swapped.tsv: 5 of 6 pairs have a side that is also in the corpus\n" in outcome.out
    assert "3 pairs (0.15%) whose source and translation are a pair of the --against text\n" in outcome.out
    assert "train.tsv, line 2 (same as swapped.tsv, line 2)\n" in outcome.out
    assert "whose source is in the --against text\n" in outcome.out
    assert "train.tsv, line 8 (same as swapped.tsv, line 5)\n" in outcome.out


def test_a_shift_of_two_files_is_reported(transduce: Any, folder: Path) -> None:
    outcome = transduce("data", "check", "--src", "train.en", "--tgt", "shifted.de", cwd=folder)
    assert outcome.code == 1
    (line,) = [line for line in outcome.out.splitlines() if "from about line" in line]
    assert line.startswith("  train.en: from about line ")
    assert line.endswith("to line 2,000, source n belongs to target n - 1")
    assert abs(int(line.split("line ")[1].split()[0].replace(",", "")) - 801) <= 20
    assert "leaks were not checked" in outcome.out


def test_json_has_the_same_report(transduce: Any, folder: Path) -> None:
    outcome = transduce("data", "check", "leaky.tsv", "--against", "valid.tsv", "--json", cwd=folder)
    assert outcome.code == 1
    report = json.loads(outcome.out)
    assert (report["pairs"], report["fit"], report["shifts"]) == (2001, False, [])
    assert report["against"] == [{"file": "valid.tsv", "pairs": 50, "leaked": 1}]
    (leak,) = [finding for finding in report["findings"] if finding["issue"] == "leaked_pair"]
    assert (leak["pairs"], leak["left_out"]) == (1, True)
    assert leak["examples"][0]["line"] == 2001


def test_pairs_that_pass_are_written_in_order(transduce: Any, folder: Path) -> None:
    arguments = ["--src", "train.en", "--tgt", "train.de", "--against-src", "valid.en", "--against-tgt", "valid.de"]
    outcome = transduce("data", "check", *arguments, "leaky.tsv", "-o", "clean.tsv.xz", cwd=folder)
    assert outcome.code == 1
    rows = lzma.decompress((folder / "clean.tsv.xz").read_bytes()).decode().splitlines()
    leaky = (folder / "leaky.tsv").read_text(encoding="utf-8").splitlines()
    assert set(rows) <= set(leaky[:-1])
    assert len(rows) >= 1_990
    assert rows == [row for row in leaky if row in set(rows)]
    again = transduce("data", "check", "clean.tsv.xz", "--against", "valid.tsv", cwd=folder)
    assert again.code == 0


def test_unusable_lines_are_counted_and_few_pairs_are_not_checked(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes("eins\tone\n\tnone\nzwei\ttwo\nohne\n\xff\tx\n".encode("latin-1"))
    outcome = transduce("data", "check", "a.tsv", cwd=tmp_path)
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "a.tsv: 2 pairs",
        "left out 1 pair with an empty side (first: a.tsv, line 2)",
        "left out 1 pair without a tab (first: a.tsv, line 4)",
        "left out 1 pair not UTF-8 (first: a.tsv, line 5)",
        "",
        "leaks were not checked: name the validation and test text with --against",
        "fewer than 500 pairs to learn from: languages and words were not checked",
        "fit to train on",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no text to check; give a .tsv or .jsonl file, or --src and --tgt"),
        (["missing.tsv"], "missing.tsv: no such file"),
        (["a.tsv", "--against", "missing.tsv"], "missing.tsv: no such file"),
        (["a.txt"], "a.txt: cannot tell its format"),
        (["--src", "-", "--tgt", "a.tsv"], "-: the text is read twice, so it cannot come from a pipe"),
        (["--src", "a.tsv"], "text to check: 1 source files but 0 target files"),
        (["a.tsv", "--against-tgt", "a.tsv"], "--against: 0 source files but 1 target files"),
        (["a.tsv", "-o", "a.tsv"], "--out would overwrite a.tsv"),
        (
            ["a.tsv", "-o", "b.txt"],
            "b.txt: pairs are not written in this format; end its name in .tsv, .jsonl, .ndjson, .parquet or .arrow",
        ),
        (
            ["a.tsv", "-o", "b.tmx"],
            "b.tmx: pairs are not written in this format; end its name in .tsv, .jsonl, .ndjson, .parquet or .arrow",
        ),
        (["a.tsv", "-o", "b.parquet.gz"], "b.parquet.gz: a table is not compressed by its name; name it b.parquet"),
        (["a.tsv", "-o", "no/b.tsv"], "no/b.tsv: cannot be written: No such file or directory"),
    ],
)
def test_an_error_is_one_line(transduce: Any, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "a.tsv").write_text("eins\tone\n")
    outcome = transduce("data", "check", *arguments, cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    *before, last = outcome.err.splitlines()
    assert last.startswith(f"transduce: {message}")
    assert all(line.startswith("data: ") for line in before)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]


def test_translations_by_language_have_one_order(transduce: Any, tmp_path: Path) -> None:
    texts = [{"en": "house", "de": "Haus"}, {"de": "Baum", "en": "tree"}, {"fr": "arbre", "de": "Baum"}]
    rows = [json.dumps({"translation": one}) for one in texts]
    for name in ("rows.jsonl", "rows.en-de.jsonl", "rows.de-en.jsonl"):
        write_lines(tmp_path / name, rows)
    for name in ("rows.jsonl", "rows.en-de.jsonl"):
        outcome = transduce("data", "check", name, "--out", "pairs.tsv", "--force", cwd=tmp_path)
        assert f"left out 1 pair in other languages than the first row (first: {name}, line 3)" in outcome.out
        assert (tmp_path / "pairs.tsv").read_text() == "house\tHaus\ntree\tBaum\n"
    outcome = transduce("data", "check", "rows.de-en.jsonl", cwd=tmp_path)
    assert outcome.code == 2
    assert "its rows have en first, but its name de; rename it, e.g. en-de.jsonl" in outcome.err

"""Rows of .jsonl and Parquet files and of Hugging Face datasets: training data, and input and output of translate."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import complaint
from toy_run import TINY, as_sets, make_toy_pairs

pytest.importorskip("pyarrow")

from transduce.files.parquet import read_table, table_writer

PAIRS = make_toy_pairs(300, seed=6)


def write(path: Path, column: str = "src", count: int = 300) -> Path:
    with table_writer(path) as add:
        for number, (source, target) in enumerate(PAIRS[:count]):
            add({"id": number, column: source, "tgt": target})
    return path


def test_a_model_is_trained_from_a_dataset_and_a_parquet_file(transduce: Any, tmp_path: Path) -> None:
    write(tmp_path / "dataset")
    write(tmp_path / "valid.parquet", count=5)
    words = ["train", "--train", "dataset", "--valid", "valid.parquet", "--preset", "tiny", "--out", "run"]
    outcome = transduce(*words, *as_sets(TINY | {"train.steps": 2}), cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "data: 300 pairs" in outcome.err
    assert "BLEU" in outcome.err


@pytest.mark.parametrize(
    ("name", "to"),
    [("in.parquet", "out.parquet"), ("dataset", "out"), ("in.jsonl", "out.jsonl"), ("in.parquet", "out.txt")],
)
def test_rows_keep_their_columns_and_get_a_translation(
    transduce: Any, trained: Any, tmp_path: Path, name: str, to: str
) -> None:
    rows = [{"id": number, "text": source, "tgt": "old"} for number, (source, _) in enumerate(PAIRS[:12])]
    if name == "in.jsonl":
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with table_writer(tmp_path / name) as add:
            for row in rows:
                add(row)
    lines = "".join(row["text"] + "\n" for row in rows)
    expected = transduce("translate", "-m", trained.run, stdin=lines, cwd=tmp_path).out.splitlines()
    outcome = transduce("translate", "-m", trained.run, name, "--out", to, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    out = tmp_path / to
    warning = f"warning: the rows had a column tgt; in {to}, the translation is in its place"
    assert (warning in outcome.err) == (to != "out.txt")
    if to == "out.txt":
        assert out.read_text().splitlines() == expected
        return
    written = map(json.loads, out.read_text().splitlines()) if to == "out.jsonl" else read_table(out)
    assert list(written) == [row | {"tgt": text} for row, text in zip(rows, expected, strict=True)]
    again = transduce("translate", "-m", trained.run, name, "--out", to, "--resume", cwd=tmp_path)
    assert again.code == 0, again.err
    assert "out.jsonl has 12 lines already" in again.err or f"{to} is complete" in again.err


def test_the_suffix_of_a_table_may_have_capitals(transduce: Any, trained: Any, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", count=3)
    (tmp_path / "a.parquet").rename(tmp_path / "A.PARQUET")
    words = ("translate", "-m", trained.run, "A.PARQUET", "--out", "OUT.PARQUET")
    assert transduce(*words, cwd=tmp_path).code == 0
    assert transduce("translate", "-m", trained.run, "OUT.PARQUET", cwd=tmp_path).out.count("\n") == 3


def test_shards_of_tables_and_text_in_one_input(transduce: Any, trained: Any, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", "body", 7)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"body": one}) + "\n" for one, _ in PAIRS[7:11]))
    words = ["translate", "-m", trained.run, "a.parquet", "b.jsonl", "--column", "body"]
    whole = transduce(*words, cwd=tmp_path)
    assert whole.out.count("\n") == 11
    parts = [transduce(*words, "--shard", f"{number}/2", cwd=tmp_path) for number in (1, 2)]
    assert "".join(part.out for part in parts) == whole.out


def test_blank_lines_of_json_are_no_rows(transduce: Any, trained: Any, tmp_path: Path) -> None:
    rows = [json.dumps({"text": one, "src": one, "tgt": other}) + "\n" for one, other in PAIRS[:3]]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    (tmp_path / "blank.jsonl").write_text("\n" + " \n\n".join(rows) + "\n")
    for words in (["translate"], ["evaluate", "--test"]):
        expected, found = (
            transduce(*words, name, "-m", trained.run, cwd=tmp_path) for name in ("rows.jsonl", "blank.jsonl")
        )
        assert (found.code, found.out) == (0, expected.out), found.err
    (tmp_path / "blank.jsonl").write_text("\n" + rows[0] + "{\n")
    message = complaint(transduce("translate", "-m", trained.run, "blank.jsonl", cwd=tmp_path))
    assert "blank.jsonl, line 3: not a JSON object" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["in.parquet", "--column", "body"], "in.parquet, row 1: there is no column body (it has id, src, tgt)"),
        (["babo", "--column", "body"], "--column names a column of .jsonl, .parquet and .arrow files and datasets"),
        (["bad.jsonl"], "bad.jsonl, line 1: not a JSON object"),
        (["in.parquet", "--jsonl", "--out", "out.parquet"], "--jsonl writes lines, and out.parquet is a table"),
        (["cut.parquet"], "cut.parquet: damaged, or not in the format that its name tells"),
    ],
)
def test_what_cannot_be_translated_is_one_line(
    transduce: Any, trained: Any, tmp_path: Path, words: list[str], message: str
) -> None:
    write(tmp_path / "in.parquet", count=3)
    (tmp_path / "bad.jsonl").write_text("no object\n")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "in.parquet").read_bytes()[:-20])
    assert message in complaint(transduce("translate", "-m", trained.run, *words, cwd=tmp_path))
    assert not (tmp_path / "out.parquet").exists()


def test_back_translations_are_lines(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("babo\n")
    outcome = transduce("backtranslate", "-m", trained.run, "in.txt", "--out", "out.parquet", cwd=tmp_path)
    assert complaint(outcome) == "out.parquet: a table cannot be continued; end the name in .tsv or .jsonl"
    assert not (tmp_path / "out.parquet").exists()

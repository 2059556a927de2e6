"""Tables: Parquet and Arrow files and Hugging Face datasets on disk, as pairs, texts and rows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from transduce.classification.labelled import read_labelled
from transduce.errors import DataError
from transduce.files.pairs import ReadReport, pair_writer, read_pairs
from transduce.files.parquet import count_rows, read_table, schema_of, table_writer
from transduce.files.readers import read_texts
from transduce.files.rows import count_source_rows, read_source_rows, row_writer
from transduce.language_model.documents import read_documents

pyarrow: Any = pytest.importorskip("pyarrow")

Rows = Sequence[dict[str, Any]]
PAIRS: Rows = [{"src": f"eins {number}", "tgt": f"one {number}", "id": number} for number in range(2500)]


def write(path: Path, rows: Rows) -> Path:
    """Write rows with pyarrow itself, in the format that the name tells; without suffix, as `save_to_disk` does."""
    import pyarrow.ipc
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist(list(rows))
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=700)
    elif path.suffix == ".arrow":
        with pyarrow.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.mkdir()
        half = len(rows) // 2
        names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
        for name, part in zip(names, (table.slice(0, half), table.slice(half)), strict=True):
            with pyarrow.ipc.new_stream(str(path / name), table.schema) as writer:
                writer.write_table(part)
        state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": "train"}
        (path / "state.json").write_text(json.dumps(state))
        (path / "dataset_info.json").write_text("{}")
    return path


every_format = pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.jsonl", "dataset"])


@every_format
def test_pairs_are_read_in_order(tmp_path: Path, name: str) -> None:
    path, report = write(tmp_path / name, PAIRS), ReadReport()
    assert list(read_pairs([(str(path),)], report)) == [(row["src"], row["tgt"]) for row in PAIRS]
    assert (report.pairs, report.left_out) == (2500, {})
    assert count_source_rows(path) == 2500
    assert [row for _, row in read_source_rows(path)] == PAIRS


@every_format
def test_a_column_of_translations_by_language_is_a_pair(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [{"translation": {"de": "eins", "en": "one"}}])
    assert list(read_pairs([(str(path),)], ReadReport())) == [("eins", "one")]
    assert list(read_pairs([(str(path),)], ReadReport(), reverse=True)) == [("one", "eins")]


@every_format
def test_unusable_rows_are_left_out_and_counted(tmp_path: Path, name: str) -> None:
    rows = [{"src": "a", "tgt": "b"}, {"src": " ", "tgt": "b"}, {"src": None, "tgt": "b"}, {"src": "a\0", "tgt": "b"}]
    rows += [{"src": "x" * 60_000, "tgt": "y" * 30_000}, {"src": "c", "tgt": "d"}]
    path, report = write(tmp_path / name, rows), ReadReport()
    assert len(list(read_pairs([(str(path),)], report))) == 3
    assert report.left_out == {"with an empty side": 1, 'not a row with texts "src" and "tgt"': 1, "with a NUL byte": 1}
    assert report.first["with an empty side"] == f"{path}, line 2"


@every_format
def test_texts_documents_and_labels_are_read(tmp_path: Path, name: str) -> None:
    rows = [{"text": "good\nfilm", "label": 1}, {"text": "", "label": 0}, {"text": "bad film", "label": 0}]
    corpus = [(str(write(tmp_path / name, rows)),)]
    assert list(read_documents(corpus, ReadReport())) == [("good\nfilm",), ("bad film",)]
    assert list(read_texts(corpus, ReadReport())) == [("good\nfilm",), ("bad film",)]
    assert list(read_labelled(corpus, ReadReport())) == [("good\nfilm", "1"), ("bad film", "0")]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.jsonl", "a.jsonl.gz", "dataset"])
def test_rows_that_were_written_are_read_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with (table_writer if name == "dataset" else row_writer)(path) as add:
        for row in PAIRS:
            add(dict(row))
        assert not path.exists()
    assert [row for _, row in read_source_rows(path)] == PAIRS


def test_pairs_that_were_written_are_read_back(tmp_path: Path) -> None:
    with pair_writer(tmp_path / "a.parquet") as add:
        add("eins", "one")
    assert list(read_table(tmp_path / "a.parquet")) == [{"src": "eins", "tgt": "one"}]


@pytest.mark.parametrize(
    ("row", "reason"),
    [({"src": 5}, "rows 1,025 to 1,025 have values of another type"), ({"x": "y"}, "the column x is not in the first")],
)
def test_a_table_of_rows_that_do_not_fit_together_does_not_appear(
    tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    def write_rows() -> None:
        with row_writer(tmp_path / "a.parquet") as add:
            for one in [{"src": "a"}] * 1024 + [row]:
                add(one)

    with pytest.raises(DataError, match=reason):
        write_rows()
    assert list(tmp_path.iterdir()) == []


def damaged(tmp_path: Path, name: str) -> tuple[Path, str]:
    """A table that cannot be read, and the message."""
    path = tmp_path / name
    if name == "splits":
        path.mkdir()
        (path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
        return path, rf"{path}: a dataset with the splits train, test; name one: {path}/train"
    if name == "folder":
        path.mkdir()
        return path, rf"{path} is a folder; name its files, e.g. {path}/\* \(a Hugging Face dataset would"
    if name == "outside":
        write(path, PAIRS)
        (path / "state.json").write_text('{"_data_files": [{"filename": "../secret.arrow"}]}')
        return path, "../secret.arrow is not a file of the folder"
    if name == "indices":
        write(path, PAIRS)
        (path / "state.json").write_text('{"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}')
        return path, "call flatten_indices"
    if name == "missing.parquet":
        return path, f"{path}: no such file"
    write(path, PAIRS)
    path.write_bytes(path.read_bytes()[:-200])
    return path, f"{path}: damaged, or not in the format"


@pytest.mark.parametrize("name", ["splits", "folder", "outside", "indices", "missing.parquet", "a.parquet", "a.arrow"])
def test_a_table_that_cannot_be_read_is_an_error_that_tells_why(tmp_path: Path, name: str) -> None:
    path, reason = damaged(tmp_path, name)
    with pytest.raises(DataError, match=reason):
        list(read_table(path))


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_a_row_without_a_text_to_translate_is_an_error(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [{"id": "a", "body": "eins"}, {"id": "b", "body": None}])
    with pytest.raises(
        DataError, match=rf"{path}, row 1: there is no column src \(it has id, body\); name the text's column src"
    ):
        list(read_source_rows(path))
    with pytest.raises(DataError, match=rf"{path}, row 2: the column body has no text"):
        list(read_source_rows(path, "body"))


def test_without_pyarrow_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", PAIRS)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'transduce\[parquet\]'"):
        list(read_table(path))


def test_a_folder_of_texts_needs_no_pyarrow_for_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    for read in (read_table, schema_of, count_rows):
        with pytest.raises(DataError, match=f"{tmp_path} is a folder; name its files"):
            list(read(tmp_path))

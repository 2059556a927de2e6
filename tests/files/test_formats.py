"""A new format of sentence pairs is one row in the table: reading, writing and messages follow from it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from transduce.errors import DataError
from transduce.files import pair_formats as formats
from transduce.files.files import read_lines
from transduce.files.pair_formats import Pair, PairFormat, UnusableError
from transduce.files.pairs import ReadReport, pair_writer, read_pairs


def read_toy(path: Path) -> Iterator[tuple[int, Pair | UnusableError]]:
    """Each pair takes two lines; a pair without a target is a problem."""
    lines = read_lines(path)
    for number, (source, target) in enumerate(zip(lines, lines, strict=True)):
        yield 2 * number + 1, (source, target) if target else UnusableError("without a second line")


@pytest.fixture
def toy_format(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = PairFormat((".toy", ".play"), read_toy, lambda source, target: f"{source}\n{target}\n")
    monkeypatch.setattr(formats, "PAIR_FORMATS", (*formats.PAIR_FORMATS, toy))


@pytest.mark.usefixtures("toy_format")
@pytest.mark.parametrize("name", ["pairs.toy", "pairs.play.gz"])
def test_a_row_in_the_table_is_read_and_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pair_writer(path) as write:
        for pair in [("a", "A"), ("b", ""), ("c", "C")]:
            write(*pair)
    report = ReadReport()
    assert list(read_pairs([(str(path),)], report)) == [("a", "A"), ("c", "C")]
    assert report.lines() == [f"left out 1 pair without a second line (first: {path}, line 3)"]


@pytest.mark.usefixtures("toy_format")
def test_messages_list_the_suffixes_of_the_table(tmp_path: Path) -> None:
    name = str(tmp_path / "pairs.csv")
    suffixes = r"\.tsv, \.jsonl, \.ndjson, \.parquet, \.arrow, \.tmx, \.xliff, \.xlf, \.po, \.pot, \.toy or \.play"
    listed = rf"{name}: cannot tell its format; end its name in {suffixes}"
    with pytest.raises(DataError, match=listed + ", or give a source file and a target file$"):
        list(read_pairs([(name,)], ReadReport()))
    written = r"\.tsv, \.jsonl, \.ndjson, \.parquet, \.arrow, \.toy or \.play"
    with pytest.raises(DataError, match=rf"{name}: .* end its name in {written}$"), pair_writer(Path(name)):
        pass


def test_no_two_formats_share_a_suffix() -> None:
    suffixes = [suffix for pair_format in formats.PAIR_FORMATS for suffix in pair_format.suffixes]
    assert len(set(suffixes)) == len(suffixes)


@pytest.mark.parametrize(
    ("name", "line", "is_header"),
    [
        ("a.tsv", "source\ttarget", True),
        ("a.tsv", "SRC\tTGT\tscore", True),
        ("a.tsv", "English\tGerman", True),
        ("a.tsv", "de\ten", True),
        ("a.es-it.tsv", "es\tit", True),
        ("a.tsv", "it\tes", False),
        ("a.tsv", "source\tQuelle", False),
        ("a.tsv", "no\tno", False),
    ],
)
def test_a_first_line_that_names_the_columns_is_no_pair(tmp_path: Path, name: str, line: str, is_header: bool) -> None:
    (path := tmp_path / name).write_text(f"{line}\na\tA\n{line}\n")
    report, named = ReadReport(), tuple(line.split("\t")[:2])
    assert list(read_pairs([(str(path),)], report)) == [*([] if is_header else [named]), ("a", "A"), named]
    left_out = f"left out 1 pair with names of columns in place of texts (first: {path}, line 1)"
    assert report.lines() == ([left_out] if is_header else [])

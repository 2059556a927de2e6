"""Written pairs are read back unchanged, and files are written atomically."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.files.pairs import Pair, ReadReport, pair_writer, read_pairs

PAIRS = [("ein Haus", "a house"), ("„größer“", 'larger \\ "than"'), ("家", "home")]


def write(path: Path, pairs: list[Pair]) -> None:
    with pair_writer(path) as writer:
        for pair in pairs:
            writer(*pair)


def read(path: Path) -> list[Pair]:
    return list(read_pairs([(str(path),)], ReadReport()))


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl", ".ndjson"])
@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
def test_written_pairs_are_read_back(tmp_path: Path, suffix: str, compression: str) -> None:
    path = tmp_path / f"pairs{suffix}{compression}"
    write(path, PAIRS)
    assert read(path) == PAIRS
    assert list(tmp_path.iterdir()) == [path]


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: not text.isspace()
)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1))
def test_any_text_is_unchanged_in_jsonl_and_one_line_in_tsv(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    write(folder / "a.jsonl", pairs)
    assert read(folder / "a.jsonl") == pairs
    write(folder / "a.tsv", pairs)
    assert (folder / "a.tsv").read_bytes().count(b"\n") == len(pairs)
    assert (folder / "a.tsv").read_bytes().count(b"\t") == len(pairs)


def test_an_error_in_the_block_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    write(path, PAIRS)
    with pytest.raises(ZeroDivisionError), pair_writer(path) as writer:
        writer("a", str(1 / 0))
    assert read(path) == PAIRS
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["pairs.txt", "pairs", "pairs.xz", "missing/pairs.tsv"])
def test_a_file_that_cannot_be_written_is_an_error_with_its_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=name), pair_writer(tmp_path / name):
        pass

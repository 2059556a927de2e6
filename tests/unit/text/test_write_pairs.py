"""Written pairs are what is read again, and a file is there whole or not at all."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.text.pairs import Pair, ReadReport, pair_writer, read_pairs

PAIRS = [("ein Haus", "a house"), ("„größer“", 'larger \\ "than"'), ("家", "home")]


def write(path: Path, pairs: list[Pair]) -> None:
    with pair_writer(path) as writer:
        for pair in pairs:
            writer(*pair)


def read(path: Path) -> list[Pair]:
    return list(read_pairs([(str(path),)], ReadReport()))


@pytest.mark.parametrize("kind", [".tsv", ".jsonl", ".ndjson"])
@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
def test_what_is_written_is_read_again(tmp_path: Path, kind: str, compression: str) -> None:
    path = tmp_path / f"pairs{kind}{compression}"
    write(path, PAIRS)
    assert read(path) == PAIRS
    assert list(tmp_path.iterdir()) == [path]


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: not text.isspace()
)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1))
def test_any_text_stays_itself_in_jsonl_and_one_line_in_tsv(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    write(folder / "a.jsonl", pairs)
    assert read(folder / "a.jsonl") == pairs
    write(folder / "a.tsv", pairs)
    assert (folder / "a.tsv").read_bytes().count(b"\n") == len(pairs)
    assert (folder / "a.tsv").read_bytes().count(b"\t") == len(pairs)


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    write(path, PAIRS)
    with pytest.raises(ZeroDivisionError), pair_writer(path) as writer:
        writer("a", str(1 / 0))
    assert read(path) == PAIRS
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["pairs.txt", "pairs", "pairs.xz", "missing/pairs.tsv"])
def test_where_nothing_can_be_written_a_line_says_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=name), pair_writer(tmp_path / name):
        pass

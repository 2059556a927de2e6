"""Lines of a file: no input may crash the reader, split or join a line, or be held whole in memory."""

import gzip
import lzma
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.text import files
from transduce.text.files import raw_lines, read_lines

COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": partial(lzma.compress, preset=0), ".zst": zstandard.compress}
endings = pytest.mark.parametrize("ending", list(COMPRESS))
compressed_endings = pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])


def write(folder: Path, content: bytes, ending: str = "") -> Path:
    path = folder / f"text.txt{ending}"
    path.write_bytes(COMPRESS[ending](content))
    return path


@endings
def test_plain_and_compressed_files_give_the_same_lines(tmp_path: Path, ending: str) -> None:
    assert list(read_lines(write(tmp_path, "eins\nzwei äöü\ndrei\n".encode(), ending))) == ["eins", "zwei äöü", "drei"]


@compressed_endings
def test_a_file_of_several_compressed_parts_is_read_to_its_end(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"text{ending}"
    path.write_bytes(COMPRESS[ending](b"one\ntw") + COMPRESS[ending](b"o\nthree\n"))
    assert list(read_lines(path)) == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b" a \n", [" a "]),
    ],
)
def test_only_a_newline_ends_a_line(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    assert list(read_lines(write(tmp_path, content))) == lines


@pytest.mark.parametrize(("content", "lines"), [(b"\xef\xbb\xbfa", ["a"]), (b"\xef\xbb\xbf", [])])
def test_a_byte_order_mark_is_no_text_even_in_a_file_without_a_newline(
    tmp_path: Path, content: bytes, lines: list[str]
) -> None:
    assert list(read_lines(write(tmp_path, content))) == lines


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\x1d", "\x1e"])
def test_other_separators_of_unicode_are_text(tmp_path: Path, separator: str) -> None:
    line = f"a{separator}b"
    assert list(read_lines(write(tmp_path, f"{line}\nc\n".encode()))) == [line, "c"]


@example(b"\xef\xbb\xbfa", 1)
@given(st.binary(max_size=40), st.integers(min_value=1, max_value=9))
def test_lines_do_not_depend_on_where_blocks_end(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, block: int
) -> None:
    path = write(tmp_path_factory.getbasetemp(), content)
    whole = list(raw_lines(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_BLOCK", block)
        assert list(raw_lines(path)) == whole


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b" ")), min_size=1))
def test_there_is_one_line_for_every_newline(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = write(tmp_path_factory.getbasetemp(), b"first\n" + b"".join(line + b"\n" for line in lines))
    assert list(raw_lines(path)) == [b"first", *(line.removesuffix(b"\r") for line in lines)]


@pytest.mark.parametrize("block", [1, 3, 7, 1 << 20])
def test_a_line_above_the_limit_is_none_and_its_neighbours_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 10)
    monkeypatch.setattr(files, "_BLOCK", block)
    path = write(tmp_path, b"x" * 10 + b"\n" + b"x" * 11 + b"\nshort\n" + b"x" * 500 + b"\n\nlast" + b"x" * 50)
    assert list(raw_lines(path)) == [b"x" * 10, None, b"short", None, b"", None]


@compressed_endings
def test_an_endless_line_is_never_held_in_memory(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"text.txt{ending}"
    path.write_bytes(COMPRESS[ending](b"first\n" + b"x" * 30_000_000 + b"\nlast\n"))
    tracemalloc.start()
    try:
        lines = list(raw_lines(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines == [b"first", None, b"last"]
    assert peak < 15_000_000


def test_a_line_above_the_limit_is_an_error_where_each_line_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 10)
    path = write(tmp_path, b"ok\n" + b"x" * 11 + b"\n")
    with pytest.raises(DataError, match=r"text\.txt, line 2: longer than"):
        list(read_lines(path))


def test_a_line_that_is_not_utf8_is_an_error_where_each_line_counts(tmp_path: Path) -> None:
    lines = read_lines(write(tmp_path, b"ok\nok\n\xff\n"))
    assert [next(lines), next(lines)] == ["ok", "ok"]
    with pytest.raises(DataError, match=r"text\.txt, line 3: not UTF-8"):
        next(lines)


@compressed_endings
def test_a_compressed_file_that_was_cut_short_is_an_error(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, b"".join(b"line %d\n" % n for n in range(50_000)), ending)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"text\.txt.*: damaged or cut short"):
        list(raw_lines(path))


@compressed_endings
def test_a_file_that_is_not_what_its_ending_says_is_an_error(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"text{ending}"
    path.write_bytes(b"this was never compressed\n")
    with pytest.raises(DataError, match=rf"text\{ending}"):
        list(raw_lines(path))


@compressed_endings
def test_a_flipped_bit_in_a_compressed_file_is_no_crash(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, b"".join(b"line %d\n" % n for n in range(5_000)), ending)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)
    message = ""
    try:
        list(raw_lines(path))
    except DataError as error:
        message = str(error)
    # A .zst need not hold a checksum, so there a changed character may pass.
    assert str(path) in message or (ending == ".zst" and not message)


@endings
def test_a_missing_file_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"nothing{ending}"
    with pytest.raises(DataError) as caught:
        list(raw_lines(path))
    assert str(caught.value) == f"{path}: no such file"


@endings
def test_a_folder_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"folder{ending}"
    path.mkdir()
    with pytest.raises(DataError, match=rf"{path.name}.*([Dd]irectory|folder)"):
        list(raw_lines(path))

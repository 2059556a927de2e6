"""Lines of a file: no input crashes the reader, splits or joins lines, or is held in memory completely."""

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
from transduce.files import files
from transduce.files.files import raw_lines, read_lines, text_blocks

COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": partial(lzma.compress, preset=0), ".zst": zstandard.compress}
suffixes = pytest.mark.parametrize("suffix", list(COMPRESS))
compressed_suffixes = pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])


def write(folder: Path, content: bytes, suffix: str = "") -> Path:
    path = folder / f"text.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](content))
    return path


@suffixes
def test_plain_and_compressed_files_give_the_same_lines(tmp_path: Path, suffix: str) -> None:
    assert list(read_lines(write(tmp_path, "eins\nzwei äöü\ndrei\n".encode(), suffix))) == ["eins", "zwei äöü", "drei"]


@compressed_suffixes
def test_all_compressed_streams_of_a_file_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(COMPRESS[suffix](b"one\ntw") + COMPRESS[suffix](b"o\nthree\n"))
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
def test_a_byte_order_mark_is_removed_even_in_a_file_without_a_newline(
    tmp_path: Path, content: bytes, lines: list[str]
) -> None:
    assert list(read_lines(write(tmp_path, content))) == lines


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\x1d", "\x1e"])
def test_other_unicode_separators_are_text(tmp_path: Path, separator: str) -> None:
    line = f"a{separator}b"
    assert list(read_lines(write(tmp_path, f"{line}\nc\n".encode()))) == [line, "c"]


@example(b"\xef\xbb\xbfa", 1)
@given(st.binary(max_size=40), st.integers(min_value=1, max_value=9))
def test_lines_do_not_depend_on_where_blocks_end(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, block: int
) -> None:
    path = write(tmp_path_factory.getbasetemp(), content)
    at_once = list(raw_lines(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_BLOCK", block)
        assert list(raw_lines(path)) == at_once


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b" ")), min_size=1))
def test_there_is_one_line_for_every_newline(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = write(tmp_path_factory.getbasetemp(), b"first\n" + b"".join(line + b"\n" for line in lines))
    assert list(raw_lines(path)) == [b"first", *(line.removesuffix(b"\r") for line in lines)]


@pytest.mark.parametrize("block", [1, 3, 7, 1 << 20])
def test_a_line_above_the_limit_is_none_and_other_lines_are_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 10)
    monkeypatch.setattr(files, "_BLOCK", block)
    path = write(tmp_path, b"x" * 10 + b"\n" + b"x" * 11 + b"\nshort\n" + b"x" * 500 + b"\n\nlast" + b"x" * 50)
    assert list(raw_lines(path)) == [b"x" * 10, None, b"short", None, b"", None]


@compressed_suffixes
def test_a_very_long_line_is_never_held_in_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](b"first\n" + b"x" * 30_000_000 + b"\nlast\n"))
    tracemalloc.start()
    try:
        lines = list(raw_lines(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines == [b"first", None, b"last"]
    assert peak < 15_000_000


def test_read_lines_rejects_a_line_above_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 10)
    path = write(tmp_path, b"ok\n" + b"x" * 11 + b"\n")
    with pytest.raises(DataError, match=r"text\.txt, line 2: longer than"):
        list(read_lines(path))


@suffixes
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "line 1: not UTF-8; this is not a text file"),
        (b"a\n\xe9\x01\n", "line 2: not UTF-8; this is not a text file"),
        (
            "é\n".encode("utf-16"),
            "line 1: UTF-16, not UTF-8; convert the file, e.g. with: iconv -f UTF-16 -t UTF-8 FILE",
        ),
        (b"\t\x1b\ncaf\xe9\r\n", "line 2: not UTF-8; convert the file, e.g. with: iconv -f ISO-8859-1 -t UTF-8 FILE"),
    ],
)
def test_the_error_for_another_encoding_tells_what_to_do(
    tmp_path: Path, content: bytes, message: str, suffix: str
) -> None:
    path = write(tmp_path, content, suffix)
    for read in (read_lines, text_blocks):
        with pytest.raises(DataError) as error:
            list(read(path))
        assert str(error.value) == f"{path}, {message}"


def test_read_lines_rejects_a_line_that_is_not_utf8(tmp_path: Path) -> None:
    lines = read_lines(write(tmp_path, b"ok\nok\n\xff\n"))
    assert [next(lines), next(lines)] == ["ok", "ok"]
    with pytest.raises(DataError, match=r"text\.txt, line 3: not UTF-8"):
        next(lines)


@compressed_suffixes
def test_a_truncated_compressed_file_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, b"".join(b"line %d\n" % n for n in range(50_000)), suffix)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"text\.txt.*: damaged or cut short"):
        list(raw_lines(path))


@compressed_suffixes
def test_a_file_that_is_not_compressed_as_its_suffix_tells_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(b"this was never compressed\n")
    with pytest.raises(DataError, match=rf"text\{suffix}"):
        list(raw_lines(path))


@compressed_suffixes
def test_a_flipped_bit_in_a_compressed_file_does_not_crash_the_reader(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, b"".join(b"line %d\n" % n for n in range(5_000)), suffix)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)
    message = ""
    try:
        list(raw_lines(path))
    except DataError as error:
        message = str(error)
    # A .zst file may lack a checksum, so a changed character may stay undetected.
    assert str(path) in message or (suffix == ".zst" and not message)


@suffixes
def test_a_missing_file_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"nothing{suffix}"
    with pytest.raises(DataError) as caught:
        list(raw_lines(path))
    assert str(caught.value) == f"{path}: no such file"


@suffixes
def test_a_folder_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"folder{suffix}"
    path.mkdir()
    with pytest.raises(DataError, match=rf"{path.name}.*([Dd]irectory|folder)"):
        list(raw_lines(path))

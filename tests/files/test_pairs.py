"""Reading pairs: whatever the files hold, line n is only paired with line n, and every line left out is reported."""

import contextlib
import gzip
import json
import lzma
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.files import files
from transduce.files.pair_formats import BAD_JSON, BAD_UTF8, EMPTY, NO_TAB, NUL, OVERLONG
from transduce.files.pairs import Pair, ReadReport, read_pairs

COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


def read(*corpus: tuple[Path, ...], reverse: bool = False) -> tuple[list[Pair], ReadReport]:
    report = ReadReport()
    result = list(read_pairs([tuple(map(str, entry)) for entry in corpus], report, reverse=reverse))
    return result, report


def two_files(folder: Path, src: bytes, tgt: bytes) -> tuple[Path, Path]:
    paths = folder / "text.src", folder / "text.tgt"
    for path, content in zip(paths, (src, tgt), strict=True):
        path.write_bytes(content)
    return paths


def one_file(folder: Path, content: bytes, name: str = "text.tsv") -> tuple[Path]:
    (folder / name).write_bytes(content)
    return (folder / name,)


@pytest.mark.parametrize("suffix", list(COMPRESS))
def test_two_files_tsv_and_jsonl_give_the_same_pairs(tmp_path: Path, suffix: str) -> None:
    expected = [("ein Haus", "a house"), ("zwei Häuser", "two houses")]

    def write(name: str, text: str) -> Path:
        path = tmp_path / f"{name}{suffix}"
        path.write_bytes(COMPRESS[suffix](text.encode()))
        return path

    sides = [
        write(name, "".join(f"{side}\n" for side in column))
        for name, column in zip("ab", zip(*expected, strict=True), strict=True)
    ]
    tsv = write("c.tsv", "".join(f"{src}\t{tgt}\n" for src, tgt in expected))
    jsonl = write("d.jsonl", "".join(json.dumps({"src": src, "tgt": tgt}) + "\n" for src, tgt in expected))
    for entry in (tuple(sides), (tsv,), (jsonl,)):
        result, report = read(entry)
        assert result == expected
        assert (report.pairs, report.left_out) == (2, {})


def test_several_files_make_one_corpus_in_their_order(tmp_path: Path) -> None:
    tsv = one_file(tmp_path, b"a\tA\nb\tB\n")
    jsonl = one_file(tmp_path, b'{"src": "c", "tgt": "C"}\n', "text.jsonl")
    result, report = read(tsv, two_files(tmp_path, b"d\n", b"D\n"), jsonl, tsv)
    assert result == [("a", "A"), ("b", "B"), ("d", "D"), ("c", "C"), ("a", "A"), ("b", "B")]
    assert report.pairs == 6


def test_reverse_swaps_the_sides(tmp_path: Path) -> None:
    assert read(one_file(tmp_path, b"a\tA\nb\tB\n"), reverse=True)[0] == [("A", "a"), ("B", "b")]


@pytest.mark.parametrize(
    ("src", "tgt"), [(b"a\r\nb\r\n", b"A\nB\n"), (b"\xef\xbb\xbfa\nb\n", b"A\r\nB"), (b"a\nb", b"\xef\xbb\xbfA\nB\n")]
)
def test_line_endings_and_byte_order_marks_are_removed(tmp_path: Path, src: bytes, tgt: bytes) -> None:
    assert read(two_files(tmp_path, src, tgt))[0] == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize("separator", ["\u2028", "\u0085", "\x1e", "\v"])
def test_other_unicode_separators_do_not_misalign_pairs(tmp_path: Path, separator: str) -> None:
    src = f"a{separator}a\nb\n"
    expected = [(f"a{separator}a", "A"), ("b", "B")]
    assert read(two_files(tmp_path, src.encode(), b"A\nB\n"))[0] == expected
    assert read(one_file(tmp_path, f"a{separator}a\tA\nb\tB\n".encode()))[0] == expected


def test_white_space_around_a_text_is_kept(tmp_path: Path) -> None:
    assert read(two_files(tmp_path, b" a  b \n", b"\tA\n"))[0] == [(" a  b ", "\tA")]


def test_further_columns_of_a_tsv_are_ignored(tmp_path: Path) -> None:
    assert read(one_file(tmp_path, b"a\tA\t0.7\t\xff\n"))[0] == [("a", "A")]


def test_further_keys_of_a_jsonl_are_ignored(tmp_path: Path) -> None:
    line = b'{"id": 7, "tgt": "A", "src": "a", "more": [1, {}]}\n'
    assert read(one_file(tmp_path, line, "text.jsonl"))[0] == [("a", "A")]


@pytest.mark.parametrize(("src", "tgt", "counts"), [("a\nb\nc\n", "A\n", ("3", "1")), ("", "A\nB\n", ("0", "2"))])
def test_files_of_unequal_length_are_an_error_with_both_counts(
    tmp_path: Path, src: str, tgt: str, counts: tuple[str, str]
) -> None:
    paths = two_files(tmp_path, src.encode(), tgt.encode())
    with pytest.raises(DataError) as caught:
        read(paths)
    assert f"{paths[0]} has {counts[0]} lines and {paths[1]} has {counts[1]}" in str(caught.value)
    assert str(caught.value).endswith("; find the first misaligned line")  # the pairs may not be for training


# Each case: the bad line of the source file, of the target file, what the report calls it and which file is at fault.
HOSTILE = {
    "bad UTF-8 in the source": (b"\xff\xfe", b"X", BAD_UTF8, "src"),
    "bad UTF-8 in the target": (b"x", b"caf\xe9", BAD_UTF8, "tgt"),
    "a surrogate written as UTF-8": (b"\xed\xa0\x80", b"X", BAD_UTF8, "src"),
    "an empty source": (b"", b"X", EMPTY, "src"),
    "an empty target": (b"x", b"", EMPTY, "tgt"),
    "only white space": (b"x", " \t\u3000\u2028".encode(), EMPTY, "tgt"),
    "a NUL byte": (b"x\0y", b"X", NUL, "src"),
    "a NUL byte in the target": (b"x", b"\0", NUL, "tgt"),
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_a_bad_line_is_left_out_on_both_sides_and_reported(tmp_path: Path, case: str) -> None:
    bad_src, bad_tgt, problem, side = HOSTILE[case]
    src = b"a\n" + bad_src + b"\nc\n" + bad_src + b"\ne\n"
    tgt = b"A\n" + bad_tgt + b"\nC\n" + bad_tgt + b"\nE\n"
    paths = two_files(tmp_path, src, tgt)
    result, report = read(paths)
    assert result == [("a", "A"), ("c", "C"), ("e", "E")]
    assert report.left_out == {problem: 2}
    assert report.lines() == [f"left out 2 pairs {problem} (first: {tmp_path / f'text.{side}'}, line 2)"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"one side", NO_TAB),
        (b"", EMPTY),
        (b"x\t", EMPTY),
        (b"\tX", EMPTY),
        (b"\t", EMPTY),
        (b"x\t\xff", BAD_UTF8),
        (b"\xff", BAD_UTF8),
        (b"x\0\tX", NUL),
    ],
)
def test_a_bad_line_of_a_tsv_is_left_out_and_reported(tmp_path: Path, line: bytes, problem: str) -> None:
    result, report = read(one_file(tmp_path, b"a\tA\n" + line + b"\nc\tC\n"))
    assert result == [("a", "A"), ("c", "C")]
    assert report.lines() == [f"left out 1 pair {problem} (first: {tmp_path / 'text.tsv'}, line 2)"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"no json", BAD_JSON),
        (b'["a", "b"]', BAD_JSON),
        (b'"src tgt"', BAD_JSON),
        (b"7", BAD_JSON),
        (b"null", BAD_JSON),
        (b"{}", BAD_JSON),
        (b'{"src": "x"}', BAD_JSON),
        (b'{"src": "x", "tgt": 5}', BAD_JSON),
        (b'{"src": "x", "tgt": null}', BAD_JSON),
        (b'{"src": "x", "tgt": ["X"]}', BAD_JSON),
        (b'{"src": "x", "tgt": "\\ud800"}', BAD_JSON),
        (b'{"src": "x", "tgt": "X"', BAD_JSON),
        (b"[" * 50_000, BAD_JSON),
        (b'{"src": ' * 10_000, BAD_JSON),
        (b'{"src": ' + b"9" * 10_000 + b', "tgt": "X"}', BAD_JSON),
        (b'{"src": "x\\u0000", "tgt": "X"}', NUL),
        (b'{"src": "", "tgt": "X"}', EMPTY),
        (b'{"src": "x", "tgt": " "}', EMPTY),
        (b'{"src": "\xff", "tgt": "X"}', BAD_UTF8),
    ],
    ids=lambda value: value[:30].decode(errors="replace") if isinstance(value, bytes) else "",
)
def test_a_bad_line_of_a_jsonl_is_left_out_and_reported(tmp_path: Path, line: bytes, problem: str) -> None:
    content = b'{"src": "a", "tgt": "A"}\n' + line + b'\n{"src": "c", "tgt": "C"}\n'
    result, report = read(one_file(tmp_path, content, "text.jsonl"))
    assert result == [("a", "A"), ("c", "C")]
    assert report.lines() == [f"left out 1 pair {problem} (first: {tmp_path / 'text.jsonl'}, line 2)"]


def test_every_problem_has_its_own_count_and_first_line(tmp_path: Path) -> None:
    content = b"a\tA\n\n\xff\tB\nb\tB\n\nno tab\n\xfe\tC\n\n"
    result, report = read(one_file(tmp_path, content))
    assert result == [("a", "A"), ("b", "B")]
    assert report.left_out == {EMPTY: 3, BAD_UTF8: 2, NO_TAB: 1}
    assert [report.first[problem].rpartition(" ")[2] for problem in report.left_out] == ["2", "3", "6"]


@pytest.mark.parametrize("layout", ["two files", "tsv", "jsonl"])
def test_an_overlong_line_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 40)
    monkeypatch.setattr(files, "_BLOCK", 64)
    long = b"x" * 3000
    if layout == "two files":
        result, report = read(two_files(tmp_path, b"a\nb\n" + long + b"\nd\n", b"A\n" + long + b"\nC\nD\n"))
        assert result == [("a", "A"), ("d", "D")]
        assert report.left_out == {OVERLONG: 2}
        assert report.first[OVERLONG] == f"{tmp_path / 'text.tgt'}, line 2"
    elif layout == "tsv":
        result, report = read(one_file(tmp_path, b"a\tA\nb\t" + long + b"\nd\tD\n"))
        assert (result, report.left_out) == ([("a", "A"), ("d", "D")], {OVERLONG: 1})
    else:
        content = b'{"src":"a","tgt":"A"}\n{"src":"b","tgt":"' + long + b'"}\n{"src":"d","tgt":"D"}\n'
        result, report = read(one_file(tmp_path, content, "text.jsonl"))
        assert (result, report.left_out) == ([("a", "A"), ("d", "D")], {OVERLONG: 1})


@pytest.mark.parametrize(
    ("content", "name"), [(b"", "text.tsv"), (b"\n\n", "text.tsv"), (b"no tab\n", "text.tsv"), (b"{}\n", "text.jsonl")]
)
def test_a_file_without_a_usable_pair_is_an_error_that_tells_why(tmp_path: Path, content: bytes, name: str) -> None:
    entry = one_file(tmp_path, content, name)
    with pytest.raises(DataError, match="no usable sentence pair") as caught:
        read(entry)
    assert str(entry[0]) in str(caught.value)
    assert ("left out" in str(caught.value)) == bool(content)


def test_two_empty_files_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no usable sentence pair"):
        read(two_files(tmp_path, b"", b""))


def test_a_file_name_without_a_known_suffix_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"text\.csv.*\.tsv.*\.jsonl"):
        read(one_file(tmp_path, b"a,A\n", "text.csv"))


def test_an_entry_of_three_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one file or a pair of files, not 3"):
        read((tmp_path / "a", tmp_path / "b", tmp_path / "c"))


@pytest.mark.parametrize("entry", [("nothing.tsv",), ("text.src", "nothing.tgt"), ("folder.tsv",)])
def test_a_missing_file_or_a_folder_is_named(tmp_path: Path, entry: tuple[str, ...]) -> None:
    (tmp_path / "text.src").write_bytes(b"a\n")
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(DataError, match=entry[-1]):
        read(tuple(tmp_path / name for name in entry))


def test_a_damaged_file_is_an_error_and_not_a_shorter_corpus(tmp_path: Path) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(20_000))
    src, tgt = two_files(tmp_path, lines, b"")
    damaged = tgt.with_suffix(".gz")
    damaged.write_bytes(gzip.compress(lines)[:-2000])
    with pytest.raises(DataError, match=r"text\.gz: damaged or cut short after line"):
        read((src, damaged))


def expected_pairs(src: bytes, tgt: bytes) -> tuple[list[Pair], int]:
    """The usable pairs of two files, by a simple implementation, and the number of unusable ones."""

    def lines(content: bytes) -> list[bytes]:
        parts = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        return [part.removesuffix(b"\r") for part in (parts if parts[-1] else parts[:-1])]

    def usable(raw: bytes) -> bool:
        try:
            return b"\0" not in raw and bool(raw.decode().strip())
        except UnicodeDecodeError:
            return False

    both = list(zip(lines(src), lines(tgt), strict=True))
    good = [(a.decode(), b.decode()) for a, b in both if usable(a) and usable(b)]
    return good, len(both) - len(good)


hostile_bytes = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from(
            [b"a", "ä".encode(), b"\n", b"\r\n", b"\0", b"\xff", b"\t", b" ", "\u2028".encode(), b"\xef\xbb\xbf", b"{"]
        ),
        max_size=25,
    ).map(b"".join),
)


@example(b"\xef\xbb\xbfa", b"A")
@given(hostile_bytes, hostile_bytes)
def test_arbitrary_bytes_raise_only_data_errors_and_keep_lines_aligned(
    tmp_path_factory: pytest.TempPathFactory, src: bytes, tgt: bytes
) -> None:
    paths = two_files(tmp_path_factory.getbasetemp(), src, tgt)
    report = ReadReport()
    result: list[Pair] = []
    try:
        for pair in read_pairs([(str(paths[0]), str(paths[1]))], report):
            result.append(pair)
    except DataError:
        try:
            good, _ = expected_pairs(src, tgt)
        except ValueError:
            return  # unequal line counts are an error
        assert good == []
    else:
        good, bad = expected_pairs(src, tgt)
        assert result == good
        assert sum(report.left_out.values()) == bad


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_whichever_lines_are_bad_the_others_stay_aligned(
    tmp_path_factory: pytest.TempPathFactory, is_good: list[tuple[bool, bool]]
) -> None:
    def content(side: int) -> bytes:
        bad = (b"\xff", b"", b"\0")
        return b"".join((b"%d" % n if good[side] else bad[n % 3]) + b"\n" for n, good in enumerate(is_good))

    paths = two_files(tmp_path_factory.getbasetemp(), content(0), content(1))
    expected = [(str(n), str(n)) for n, good in enumerate(is_good) if all(good)]
    report = ReadReport()
    if not expected:
        with pytest.raises(DataError):
            list(read_pairs([tuple(map(str, paths))], report))
    else:
        assert list(read_pairs([tuple(map(str, paths))], report)) == expected
    assert report.pairs + sum(report.left_out.values()) == len(is_good)


@pytest.mark.parametrize("name", ["hostile.tsv", "hostile.jsonl"])
@given(content=hostile_bytes)
def test_arbitrary_bytes_in_one_file_raise_only_data_errors(
    tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes
) -> None:
    entry = one_file(tmp_path_factory.getbasetemp(), content, name)
    result: list[Pair] = []
    with contextlib.suppress(DataError):
        result, report = read(entry)
        assert report.pairs == len(result) > 0
    assert all(side.strip() and "\0" not in side for pair in result for side in pair)

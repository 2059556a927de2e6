"""Public corpora: the catalogue, unpacking and cleaning."""

import gzip
import io
import random
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mirror import PACKAGED, tgz

from transduce.config import build
from transduce.corpora.get.catalogue import PublicCorpus, corpus_names, read_corpus
from transduce.corpora.get.get import HELD_OUT, REPEATED, TOO_LONG, UNEVEN, Cleaner, normalise_space, segments, unpack
from transduce.errors import ConfigError, DataError

# The catalogue


@pytest.mark.parametrize("name", corpus_names())
def test_every_corpus_of_the_package_can_be_read(name: str) -> None:
    corpus = read_corpus(name)
    assert corpus.disk > 2 * sum(archive.size for archive in corpus.archives)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.pop("languages"), "languages must be two"),
        (lambda table: table.pop("about"), "about must be the URL"),
        (lambda table: table["archives"].pop(), "no archive has valid files"),
        (lambda table: table["archives"].append(table["archives"][0]), "the same name"),
        (lambda table: table["archives"][0].update(url="file:///etc/passwd"), "http"),
        (lambda table: table["archives"][0].update(url="http://x:port/a.tgz"), "http"),
        (lambda table: table["archives"][0].update(url="http://x/"), "name of a file"),
        (lambda table: table["archives"][0].pop("sha256"), "64 hexadecimal digits"),
        (lambda table: table["archives"][0].pop("size"), "size must be above 0"),
        (lambda table: table["archives"][0].update(md5="0"), "unknown key md5"),
        (lambda table: table["archives"][0].update(train=[["a.en"]]), "source and target"),
        (lambda table: table["archives"][0].update(train=[["a.en", "../a.de"]]), "inside the archive"),
        (lambda table: table["archives"][0].update(train=[["a.en", "/a.de"]]), "inside the archive"),
    ],
)
def test_a_mistake_in_a_catalogue_is_named(change: Any, message: str) -> None:
    table = tomllib.loads(PACKAGED.read_text(encoding="utf-8"))
    change(table)
    with pytest.raises(ConfigError, match=message):
        build(PublicCorpus, table, "my.toml")


# Unpacking


def test_only_the_named_members_are_written(tmp_path: Path) -> None:
    members = {"../escaped": b"1", "/tmp/escaped": b"2", "./a/b.en": b"3", "a/../../c": b"4", "a/b.de": b"5"}
    archive = tmp_path / "inner" / "x.tgz"
    archive.parent.mkdir()
    archive.write_bytes(tgz(members))
    unpack(archive, {"a/b.en": archive.parent / "out/en", "a/b.de": archive.parent / "out/de"})
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert written == ["inner/out/de", "inner/out/en", "inner/x.tgz"]
    assert (archive.parent / "out/en").read_bytes() == b"3"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_not_a_file_is_an_error(tmp_path: Path, kind: bytes) -> None:
    archive = tmp_path / "x.tgz"
    archive.write_bytes(tgz({"a": b""}, type=kind, linkname="/etc/passwd"))
    with pytest.raises(DataError, match=r"x\.tgz: "):
        unpack(archive, {"a": tmp_path / "out"})
    assert not (tmp_path / "out").exists()


def test_a_damaged_archive_is_an_error_of_one_line(tmp_path: Path) -> None:
    rng = random.Random(1)
    complete = tgz({"first": rng.randbytes(900), "last": rng.randbytes(900)})
    archive = tmp_path / "x.tgz"
    damaged = [complete[:cut] for cut in (*range(40), *range(40, len(complete) - 100, 29))]
    damaged += [b"no archive", gzip.compress(b"no tar" * 500), complete[:60] + bytes(2) + complete[62:]]
    for content in damaged:
        archive.write_bytes(content)
        with pytest.raises(DataError, match=r"x\.tgz: ") as caught:
            unpack(archive, {"last": tmp_path / "out"})
        assert "\n" not in str(caught.value)


def test_an_uncompressed_tar_is_unpacked(tmp_path: Path) -> None:
    packed = io.BytesIO(gzip.decompress(tgz({"a": b"text"})))
    (tmp_path / "x.tar").write_bytes(packed.getvalue())
    unpack(tmp_path / "x.tar", {"a": tmp_path / "out"})
    assert (tmp_path / "out").read_bytes() == b"text"


def test_segments_are_in_order_and_complete() -> None:
    markup = (
        '<?xml?>\n<DOC sysid="ref"><hl>\n<seg id="1">A &amp; B &quot;C&quot;</seg>\n</hl><p>\n'
        '<SEG id="2"> two\n lines </SEG><seg id="3"></seg>\n<seg id="4">R & D</seg></p></DOC>'
    )
    assert segments(markup) == ['A & B "C"', "two lines", "", "R & D"]


# Cleaning


def test_each_rule_is_counted() -> None:
    cleaner = Cleaner([("a test", "ein Test")])
    kept = list(
        cleaner.clean(
            [
                ("good\tone ", "ein  Gutes"),
                ("good one", "ein Gutes"),
                ("good one", "anders gesagt"),
                ("w " * 250, "w " * 250),
                ("w " * 251, "w " * 250),
                ("a b c", "x"),
                ("a b c d", "x"),
                ("a test", "etwas anderes"),
                ("something else", "ein Test"),
            ]
        )
    )
    words = " ".join(["w"] * 250)
    assert kept == [("good one", "ein Gutes"), ("good one", "anders gesagt"), (words, words), ("a b c", "x")]
    assert cleaner.kept == 4
    assert cleaner.left_out == {REPEATED: 1, TOO_LONG: 1, UNEVEN: 1, HELD_OUT: 2}
    assert cleaner.lines()[0] == "left out 1 pair of more than 250 words"


usable = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text.split())


@given(st.lists(st.tuples(usable, usable)), st.lists(st.tuples(usable, usable)))
def test_kept_pairs_are_clean_and_all_others_are_counted(
    pairs: list[tuple[str, str]], tests: list[tuple[str, str]]
) -> None:
    held_out = [(normalise_space(source), normalise_space(target)) for source, target in tests]
    cleaner = Cleaner(held_out)
    kept = list(cleaner.clean([*pairs, *tests]))
    assert len(kept) + sum(cleaner.left_out.values()) == len(pairs) + len(tests)
    assert len(set(kept)) == len(kept)
    assert not {side for pair in kept for side in pair} & {side for pair in held_out for side in pair}
    assert not [side for pair in kept for side in pair if not side or "\t" in side or "\n" in side]

"""`transduce data get`, from a server on this machine to a model."""

import fcntl
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, as_sets, make_toy_pairs
from mirror import BAD_PAIRS, TEST_PAIRS, VALID_PAIRS, Fault, Mirror, catalogue_of, tgz, wmt14_files

from transduce.corpora.get.catalogue import corpus_names
from transduce.text.pairs import ReadReport, read_pairs

ROOT = Path(__file__).parents[2]
IMPATIENT = "import transduce.corpora.get.download as module; module.PAUSES = (0, 0)"
COMMON_CRAWL = "/wmt13/training-parallel-commoncrawl.tgz"


@dataclass
class Desk:
    """Where the command is given, beside a server that has what it asks for."""

    folder: Path
    mirror: Mirror
    transduce: Any

    @property
    def out(self) -> Path:
        return self.folder / "data" / "wmt14-en-de"

    def get(self, *words: str) -> Any:
        (self.folder / "wmt14-en-de.toml").write_text(catalogue_of(self.mirror.files), encoding="utf-8")
        return self.get_again(*words)

    def get_again(self, *words: str) -> Any:
        command = ("data", "get", "wmt14-en-de.toml", "--mirror", f"{self.mirror.address}/", *words)
        return self.transduce(*command, cwd=self.folder, before=IMPATIENT)

    def refusal(self, *words: str) -> str:
        return complaint(self.get(*words))


def complaint(outcome: Any) -> str:
    """The one line with which the command refuses, after what it had said before."""
    assert outcome.code == 2, outcome
    *before, last = outcome.err.splitlines()
    assert last.startswith("transduce: "), outcome.err
    assert not [line for line in before if not line.startswith("data: ")]
    return last.removeprefix("transduce: ")


@pytest.fixture
def desk(transduce: Any, tmp_path: Path) -> Iterator[Desk]:
    with Mirror(wmt14_files()) as mirror:
        yield Desk(tmp_path, mirror, transduce)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_corpus_is_fetched_cleaned_and_split(desk: Desk) -> None:
    outcome = desk.get()
    assert (outcome.code, outcome.out) == (0, "")
    assert sorted(content(desk.out)) == [
        "about.json",
        "manifest.json",
        "test.en-de.tsv",
        "train.en-de.tsv.gz",
        "valid.en-de.tsv",
    ]

    def pairs(name: str) -> list[tuple[str, str]]:
        report = ReadReport()
        found = list(read_pairs([(str(desk.out / name),)], report))
        assert not report.left_out
        return found

    good = list(dict.fromkeys(make_toy_pairs(300, seed=5)))
    assert pairs("train.en-de.tsv.gz") == [*good, BAD_PAIRS[5]]
    assert (pairs("valid.en-de.tsv"), pairs("test.en-de.tsv")) == (VALID_PAIRS, TEST_PAIRS)
    about = json.loads((desk.out / "about.json").read_text())
    assert about["pairs"] == {"train": len(good) + 1, "valid": 2, "test": 2}
    assert about["left_out"] == [
        "left out 1 pair with an empty side "
        f"(first: training-parallel-commoncrawl.tgz/commoncrawl.de-en.en, line {len(good) - 99})",
        "left out 1 pair of more than 250 words",
        "left out 1 pair with more than 3 times as many words on one side",
        "left out 2 pairs with a sentence of the validation or test set",
        "left out 21 pairs that came before",
    ]
    assert all(line in outcome.err for line in about["left_out"])
    assert "of disk are needed" in outcome.err
    assert sorted(path.name for path in desk.out.parent.iterdir()) == ["wmt14-en-de", "wmt14-en-de-archives"]


def test_the_same_command_again_does_nothing(desk: Desk) -> None:
    desk.get()
    before = content(desk.out)
    desk.mirror.requests.clear()
    outcome = desk.get_again()
    assert outcome.code == 0
    assert "is there already, and all of it is intact" in outcome.err
    assert (content(desk.out), desk.mirror.requests) == (before, [])


def test_the_same_text_is_made_again_from_archives_that_are_kept(desk: Desk) -> None:
    desk.get()
    before = content(desk.out)
    desk.mirror.requests.clear()
    shutil.rmtree(desk.out)
    assert desk.get_again().code == 0
    assert (content(desk.out), desk.mirror.requests) == (before, [])


def test_whatever_goes_wrong_on_the_way_the_text_is_the_same(desk: Desk) -> None:
    desk.get("--out", "undisturbed")
    europarl, crawl, news, dev = desk.mirror.files
    desk.mirror.faults |= {
        europarl: [Fault(cut=100), Fault(cut=50), Fault(status=503)],
        crawl: [Fault(cut=200), Fault(no_ranges=True)],
        news: [Fault(content=bytes(len(desk.mirror.files[news])))],
        dev: [Fault(status=500), Fault(cut=0)],
    }
    assert desk.get().code == 0
    assert content(desk.out) == content(desk.folder / "undisturbed")


def test_a_command_that_gave_up_goes_on_where_it_was(desk: Desk) -> None:
    desk.mirror.faults[COMMON_CRAWL] = [Fault(cut=100), *[Fault(status=503)] * 2]
    message = desk.refusal()
    assert COMMON_CRAWL in message
    assert "Run the same command again" in message
    assert not desk.out.exists()
    desk.mirror.requests.clear()
    killed = desk.folder / "data" / "wmt14-en-de-archives" / ".unpacked"  # while it was unpacking
    killed.mkdir(parents=True)
    assert desk.get_again().code == 0
    assert sorted(path.name for path in desk.out.parent.iterdir()) == ["wmt14-en-de", "wmt14-en-de-archives"]
    assert desk.mirror.requests[0] == (COMMON_CRAWL, "bytes=100-")
    assert len(desk.mirror.requests) == 3
    assert not killed.exists()


def test_a_wrong_byte_is_never_unpacked(desk: Desk) -> None:
    whole = desk.mirror.files[COMMON_CRAWL]
    wrong = whole[:50] + bytes([whole[50] ^ 1]) + whole[51:]
    desk.mirror.faults[COMMON_CRAWL] = [Fault(content=wrong)] * 2
    message = desk.refusal()
    assert COMMON_CRAWL in message
    assert "sha256" in message
    kept = sorted(path.name for path in desk.out.parent.glob("*/*.tgz*"))
    assert kept == ["training-parallel-europarl-v7.tgz"]
    assert not desk.out.exists()


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (tgz({"../../commoncrawl.de-en.en": b"evil\n"}), "does not hold commoncrawl.de-en.en, commoncrawl.de-en.de"),
        (tgz({"commoncrawl.de-en.en": b"a\nb\n", "commoncrawl.de-en.de": b"a\n"}), "has 2 lines and"),
        (wmt14_files()[COMMON_CRAWL][:-500], "cannot be unpacked"),
        (b"<html>", "cannot be unpacked"),
    ],
    ids=["a path out of the folder", "unequal sides", "cut short", "no archive"],
)
def test_an_archive_that_cannot_be_used_is_one_line(desk: Desk, archive: bytes, words: str) -> None:
    desk.mirror.files[COMMON_CRAWL] = archive
    message = desk.refusal()
    assert "training-parallel-commoncrawl.tgz" in message
    assert words in message
    assert sorted(path.name for path in desk.out.parent.iterdir()) == ["wmt14-en-de-archives"]
    assert sorted(path.name for path in desk.folder.iterdir()) == ["data", "wmt14-en-de.toml"]


def test_a_test_set_with_a_line_missing_is_refused(desk: Desk) -> None:
    dev = {"dev/newstest2013.en": b"a\n\n", "dev/newstest2013.de": b"a\nb\n"}
    markup = {f"dev/newstest2014-deen-{side}.sgm": b"<seg>a</seg>" for side in ("ref.en", "src.de")}
    desk.mirror.files["/wmt19/translation-task/dev.tgz"] = tgz(dev | markup)
    assert "the valid set is not as it should be: left out 1 pair" in desk.refusal()


def test_a_damaged_result_is_named_and_not_touched(desk: Desk) -> None:
    desk.get()
    (desk.out / "valid.en-de.tsv").write_text("x\ty\n")
    before = content(desk.out)
    assert "valid.en-de.tsv is damaged; delete data/wmt14-en-de" in complaint(desk.get_again())
    assert content(desk.out) == before


def test_a_folder_that_holds_something_else_is_not_touched(desk: Desk) -> None:
    (desk.folder / "mine").mkdir()
    assert "was not made by this command" in desk.refusal("--out", "mine")
    desk.get()
    desk.mirror.files[COMMON_CRAWL] = desk.mirror.files[COMMON_CRAWL] + bytes(8)
    assert "was made from other archives" in desk.refusal()


def test_a_second_process_is_kept_out(desk: Desk) -> None:
    archives = desk.folder / "data" / "wmt14-en-de-archives"
    archives.mkdir(parents=True)
    with (archives / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another process is fetching" in desk.refusal()
    assert desk.get_again().code == 0


def test_a_disk_without_room_is_told_beforehand(desk: Desk) -> None:
    (desk.folder / "wmt14-en-de.toml").write_text(
        catalogue_of(desk.mirror.files).replace("disk = 1_000_000", f"disk = {10**18}"), encoding="utf-8"
    )
    assert "not enough room" in complaint(desk.get_again())
    assert desk.mirror.requests == []


def test_an_unknown_corpus_or_server_is_one_line(desk: Desk) -> None:
    message = complaint(desk.transduce("data", "get", "wmt14-de", cwd=desk.folder))
    assert "did you mean wmt14-en-de?" in message
    assert all(name in message for name in corpus_names())
    assert "no such file" in complaint(desk.transduce("data", "get", "mine.toml", cwd=desk.folder))
    words = ("data", "get", "wmt14-en-de", "--mirror", "localhost")
    assert "--mirror localhost: write it as http://HOST" in complaint(desk.transduce(*words, cwd=desk.folder))
    assert list(desk.folder.iterdir()) == []


def test_the_packaged_corpus_is_not_taken_from_a_mirror_that_has_other_files(desk: Desk) -> None:
    words = ("data", "get", "wmt14-en-de", "--mirror", desk.mirror.address)
    roomy = "import shutil, types; shutil.disk_usage = lambda _: types.SimpleNamespace(free=10**12)"
    message = complaint(desk.transduce(*words, cwd=desk.folder, before=roomy))
    assert "than the one of 657,632,379 bytes" in message


def test_a_terminal_shows_progress(desk: Desk) -> None:
    (desk.folder / "x.toml").write_text(catalogue_of(desk.mirror.files), encoding="utf-8")
    ours, theirs = os.openpty()
    words = ("data", "get", "x.toml", "--mirror", desk.mirror.address)
    with desk.transduce.fresh(*words, cwd=desk.folder, stderr=theirs, stdout=subprocess.PIPE) as process:
        os.close(theirs)
        shown = b""
        while block := _read(ours):
            shown += block
    os.close(ours)
    assert process.returncode == 0
    assert "━" in shown.decode()
    assert (desk.folder / "data" / "x" / "manifest.json").exists()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other side has closed it
        return b""


def test_torch_is_not_needed(desk: Desk) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "transduce", "data", "get", "missing.toml"]
    done = subprocess.run(words, cwd=desk.folder, env=desk.transduce.environment, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "transduce.corpora.get.download" in imported
    assert "torch" not in imported


def test_the_recipe_trains_on_what_was_fetched(desk: Desk) -> None:
    desk.get()
    tiny = {name: value for name, value in TINY.items() if name != "train.learning_rate_scale"} | {"train.steps": 2}
    recipe = ROOT / "recipes" / "wmt14-en-de-base.toml"
    outcome = desk.transduce("train", recipe, *as_sets(tiny), cwd=desk.folder)
    assert outcome.code == 0, outcome.err
    assert (desk.folder / "runs" / "wmt14-en-de-base" / "model" / "model.json").exists()
    with gzip.open(desk.out / "train.en-de.tsv.gz") as text:
        assert f"{len(text.read().splitlines()):,} pairs" in outcome.err


@pytest.mark.parametrize("size", ["base", "big"])
def test_a_recipe_without_its_data_says_how_to_get_it(desk: Desk, size: str) -> None:
    outcome = desk.transduce("train", ROOT / "recipes" / f"wmt14-en-de-{size}.toml", cwd=desk.folder)
    assert complaint(outcome).endswith("to get it: transduce data get wmt14-en-de")

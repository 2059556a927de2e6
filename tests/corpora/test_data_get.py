"""`transduce data get`, from a local server to a trained model."""

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
from mirror import BAD_PAIRS, TEST_PAIRS, VALID_PAIRS, Fault, Mirror, catalogue_of, tgz, wmt14_files
from terminals import read_all
from toy_run import TINY, as_sets, make_toy_pairs

from transduce.corpora.get.catalogue import corpus_names
from transduce.files.pairs import ReadReport, read_pairs

ROOT = Path(__file__).parents[2]
NO_PAUSES = "import transduce.corpora.get.download as module; module.PAUSES = (0, 0)"
COMMON_CRAWL = "/wmt13/training-parallel-commoncrawl.tgz"


@dataclass
class Workspace:
    """A folder in which the command runs, and a server that has the archives."""

    folder: Path
    mirror: Mirror
    transduce: Any

    @property
    def out(self) -> Path:
        return self.folder / "data" / "wmt14-en-de"

    def get(self, *arguments: str) -> Any:
        (self.folder / "wmt14-en-de.toml").write_text(catalogue_of(self.mirror.files), encoding="utf-8")
        return self.get_again(*arguments)

    def get_again(self, *arguments: str) -> Any:
        command = ("data", "get", "wmt14-en-de.toml", "--mirror", f"{self.mirror.address}/", *arguments)
        return self.transduce(*command, cwd=self.folder, before=NO_PAUSES)

    def error(self, *arguments: str) -> str:
        return error_line(self.get(*arguments))


def error_line(outcome: Any) -> str:
    """The error message of a command that failed, which is its last line."""
    assert outcome.code == 2, outcome
    *before, last = outcome.err.splitlines()
    assert last.startswith("transduce: "), outcome.err
    assert not [line for line in before if not line.startswith("data: ")]
    return last.removeprefix("transduce: ")


@pytest.fixture
def workspace(transduce: Any, tmp_path: Path) -> Iterator[Workspace]:
    with Mirror(wmt14_files()) as mirror:
        yield Workspace(tmp_path, mirror, transduce)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_corpus_is_downloaded_cleaned_and_split(workspace: Workspace) -> None:
    outcome = workspace.get()
    assert (outcome.code, outcome.out) == (0, "")
    assert sorted(content(workspace.out)) == [
        "about.json",
        "manifest.json",
        "test.en-de.tsv",
        "train.en-de.tsv.gz",
        "valid.en-de.tsv",
    ]

    def pairs(name: str) -> list[tuple[str, str]]:
        report = ReadReport()
        result = list(read_pairs([(str(workspace.out / name),)], report))
        assert not report.left_out
        return result

    good = list(dict.fromkeys(make_toy_pairs(300, seed=5)))
    assert pairs("train.en-de.tsv.gz") == [*good, BAD_PAIRS[5]]
    assert (pairs("valid.en-de.tsv"), pairs("test.en-de.tsv")) == (VALID_PAIRS, TEST_PAIRS)
    about = json.loads((workspace.out / "about.json").read_text())
    assert about["pairs"] == {"train": len(good) + 1, "valid": 2, "test": 2}
    assert about["left_out"] == [
        "left out 1 pair with an empty side "
        f"(first: training-parallel-commoncrawl.tgz/commoncrawl.de-en.en, line {len(good) - 99})",
        "left out 1 pair of more than 250 words",
        "left out 1 pair with more than 3 times as many words on one side",
        "left out 2 pairs with a sentence of the validation or test set",
        "left out 21 pairs that occurred before",
    ]
    assert all(line in outcome.err for line in about["left_out"])
    assert "of disk space are needed" in outcome.err
    assert sorted(path.name for path in workspace.out.parent.iterdir()) == ["wmt14-en-de", "wmt14-en-de-archives"]


def test_the_same_command_again_does_nothing(workspace: Workspace) -> None:
    workspace.get()
    before = content(workspace.out)
    workspace.mirror.requests.clear()
    outcome = workspace.get_again()
    assert outcome.code == 0
    assert "already exists and is intact" in outcome.err
    assert (content(workspace.out), workspace.mirror.requests) == (before, [])


def test_the_same_text_is_made_again_from_archives_that_are_kept(workspace: Workspace) -> None:
    workspace.get()
    before = content(workspace.out)
    workspace.mirror.requests.clear()
    shutil.rmtree(workspace.out)
    assert workspace.get_again().code == 0
    assert (content(workspace.out), workspace.mirror.requests) == (before, [])


def test_the_text_is_the_same_whatever_fails_on_the_way(workspace: Workspace) -> None:
    workspace.get("--out", "uninterrupted")
    europarl, crawl, news, dev = workspace.mirror.files
    workspace.mirror.faults |= {
        europarl: [Fault(cut=100), Fault(cut=50), Fault(status=503)],
        crawl: [Fault(cut=200), Fault(no_ranges=True)],
        news: [Fault(content=bytes(len(workspace.mirror.files[news])))],
        dev: [Fault(status=500), Fault(cut=0)],
    }
    assert workspace.get().code == 0
    assert content(workspace.out) == content(workspace.folder / "uninterrupted")


def test_a_command_that_failed_resumes_the_download(workspace: Workspace) -> None:
    workspace.mirror.faults[COMMON_CRAWL] = [Fault(cut=100), *[Fault(status=503)] * 2]
    message = workspace.error()
    assert COMMON_CRAWL in message
    assert "Run the same command again" in message
    assert not workspace.out.exists()
    workspace.mirror.requests.clear()
    killed = workspace.folder / "data" / "wmt14-en-de-archives" / ".unpacked"  # while it was unpacking
    killed.mkdir(parents=True)
    assert workspace.get_again().code == 0
    assert sorted(path.name for path in workspace.out.parent.iterdir()) == ["wmt14-en-de", "wmt14-en-de-archives"]
    assert workspace.mirror.requests[0] == (COMMON_CRAWL, "bytes=100-")
    assert len(workspace.mirror.requests) == 3
    assert not killed.exists()


def test_a_wrong_byte_is_never_unpacked(workspace: Workspace) -> None:
    archive = workspace.mirror.files[COMMON_CRAWL]
    wrong = archive[:50] + bytes([archive[50] ^ 1]) + archive[51:]
    workspace.mirror.faults[COMMON_CRAWL] = [Fault(content=wrong)] * 2
    message = workspace.error()
    assert COMMON_CRAWL in message
    assert "sha256" in message
    kept = sorted(path.name for path in workspace.out.parent.glob("*/*.tgz*"))
    assert kept == ["training-parallel-europarl-v7.tgz"]
    assert not workspace.out.exists()


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (tgz({"../../commoncrawl.de-en.en": b"evil\n"}), "does not hold commoncrawl.de-en.en, commoncrawl.de-en.de"),
        (tgz({"commoncrawl.de-en.en": b"a\nb\n", "commoncrawl.de-en.de": b"a\n"}), "has 2 lines and"),
        (wmt14_files()[COMMON_CRAWL][:-500], "cannot be unpacked"),
        (b"<html>", "cannot be unpacked"),
    ],
    ids=["a path out of the folder", "unequal sides", "cut short", "not an archive"],
)
def test_an_unusable_archive_is_an_error_of_one_line(workspace: Workspace, archive: bytes, reason: str) -> None:
    workspace.mirror.files[COMMON_CRAWL] = archive
    message = workspace.error()
    assert "training-parallel-commoncrawl.tgz" in message
    assert reason in message
    assert sorted(path.name for path in workspace.out.parent.iterdir()) == ["wmt14-en-de-archives"]
    assert sorted(path.name for path in workspace.folder.iterdir()) == ["data", "wmt14-en-de.toml"]


def test_a_test_set_with_a_missing_line_is_an_error(workspace: Workspace) -> None:
    dev = {"dev/newstest2013.en": b"a\n\n", "dev/newstest2013.de": b"a\nb\n"}
    markup = {f"dev/newstest2014-deen-{side}.sgm": b"<seg>a</seg>" for side in ("ref.en", "src.de")}
    workspace.mirror.files["/wmt19/translation-task/dev.tgz"] = tgz(dev | markup)
    assert "the valid set is incomplete: left out 1 pair" in workspace.error()


def test_a_damaged_result_is_named_and_not_changed(workspace: Workspace) -> None:
    workspace.get()
    (workspace.out / "valid.en-de.tsv").write_text("x\ty\n")
    before = content(workspace.out)
    assert "valid.en-de.tsv is damaged; delete data/wmt14-en-de" in error_line(workspace.get_again())
    assert content(workspace.out) == before


def test_a_folder_with_other_content_is_not_changed(workspace: Workspace) -> None:
    (workspace.folder / "mine").mkdir()
    assert "was not made by this command" in workspace.error("--out", "mine")
    workspace.get()
    workspace.mirror.files[COMMON_CRAWL] = workspace.mirror.files[COMMON_CRAWL] + bytes(8)
    assert "was made from other archives" in workspace.error()


def test_a_second_process_is_refused(workspace: Workspace) -> None:
    archives = workspace.folder / "data" / "wmt14-en-de-archives"
    archives.mkdir(parents=True)
    with (archives / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another process is downloading" in workspace.error()
    assert workspace.get_again().code == 0


def test_a_disk_without_enough_space_is_an_error_before_the_download(workspace: Workspace) -> None:
    (workspace.folder / "wmt14-en-de.toml").write_text(
        catalogue_of(workspace.mirror.files).replace("disk = 1_000_000", f"disk = {10**18}"), encoding="utf-8"
    )
    assert "not enough disk space" in error_line(workspace.get_again())
    assert workspace.mirror.requests == []


def test_an_unknown_corpus_or_server_is_an_error_of_one_line(workspace: Workspace) -> None:
    message = error_line(workspace.transduce("data", "get", "wmt14-de", cwd=workspace.folder))
    assert "did you mean wmt14-en-de?" in message
    assert all(name in message for name in corpus_names())
    assert "no such file" in error_line(workspace.transduce("data", "get", "mine.toml", cwd=workspace.folder))
    command = ("data", "get", "wmt14-en-de", "--mirror", "localhost")
    assert "--mirror localhost: write it as http://HOST" in error_line(
        workspace.transduce(*command, cwd=workspace.folder)
    )
    assert list(workspace.folder.iterdir()) == []


def test_the_packaged_corpus_is_not_taken_from_a_mirror_with_other_files(workspace: Workspace) -> None:
    command = ("data", "get", "wmt14-en-de", "--mirror", workspace.mirror.address)
    much_space = "import shutil, types; shutil.disk_usage = lambda _: types.SimpleNamespace(free=10**12)"
    message = error_line(workspace.transduce(*command, cwd=workspace.folder, before=much_space))
    assert "expected a file of 657,632,379 bytes" in message


def test_a_terminal_shows_progress(workspace: Workspace) -> None:
    (workspace.folder / "x.toml").write_text(catalogue_of(workspace.mirror.files), encoding="utf-8")
    terminal, stderr = os.openpty()
    command = ("data", "get", "x.toml", "--mirror", workspace.mirror.address)
    process = workspace.transduce.background(*command, cwd=workspace.folder, stderr=stderr)
    os.close(stderr)
    assert "━" in read_all(terminal).decode()
    os.close(terminal)
    assert process.wait() == 0
    assert (workspace.folder / "data" / "x" / "manifest.json").exists()


def test_torch_is_not_needed(workspace: Workspace) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "transduce", "data", "get", "missing.toml"]
    done = subprocess.run(
        command, cwd=workspace.folder, env=workspace.transduce.environment, capture_output=True, text=True
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "transduce.corpora.get.download" in imported
    assert "torch" not in imported


def test_the_recipe_trains_on_the_downloaded_text(workspace: Workspace) -> None:
    workspace.get()
    tiny = {name: value for name, value in TINY.items() if name != "train.learning_rate_scale"} | {"train.steps": 2}
    recipe = ROOT / "recipes" / "wmt14-en-de-base.toml"
    outcome = workspace.transduce("train", recipe, *as_sets(tiny), cwd=workspace.folder)
    assert outcome.code == 0, outcome.err
    assert (workspace.folder / "runs" / "wmt14-en-de-base" / "model" / "model.json").exists()
    with gzip.open(workspace.out / "train.en-de.tsv.gz") as text:
        assert f"{len(text.read().splitlines()):,} pairs" in outcome.err


@pytest.mark.parametrize("size", ["base", "big"])
def test_a_recipe_without_its_data_tells_how_to_get_it(workspace: Workspace, size: str) -> None:
    outcome = workspace.transduce("train", ROOT / "recipes" / f"wmt14-en-de-{size}.toml", cwd=workspace.folder)
    assert error_line(outcome).endswith("to get it: transduce data get wmt14-en-de")

"""Downloading a file: whatever fails on the way, only the right file gets its name."""

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mirror import Fault, Mirror

from transduce.corpora.get import download as module
from transduce.corpora.get.download import download, partial_file
from transduce.errors import DataError

CONTENT = random.Random(1).randbytes(5000)
OTHER = random.Random(2).randbytes(5000)
PATH = "/some/file.tgz"


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setattr(module, "PAUSES", (0, 0, 0))
    with Mirror({PATH: CONTENT}) as mirror:
        yield mirror


def run(mirror: Mirror, folder: Path, size: int = len(CONTENT)) -> tuple[bytes, list[str], list[int]]:
    """The downloaded file, the lines that were logged, and the progress that was reported."""
    logged: list[str] = []
    progress: list[int] = []
    path = folder / "file.tgz"
    download(mirror.address + PATH, path, size, hashlib.sha256(CONTENT).hexdigest(), logged.append, progress.append)
    assert not partial_file(path).exists()
    return path.read_bytes(), logged, progress


def error_of(mirror: Mirror, folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        run(mirror, folder)
    assert not (folder / "file.tgz").exists()
    message = str(caught.value)
    assert message.startswith(f"{mirror.address}{PATH}: ")
    assert "\n" not in message
    return message


def test_a_file_is_downloaded_with_one_request_and_only_once(mirror: Mirror, tmp_path: Path) -> None:
    content, logged, progress = run(mirror, tmp_path)
    assert (content, logged, progress[0], progress[-1]) == (CONTENT, [], 0, 5000)
    assert run(mirror, tmp_path)[0] == CONTENT
    assert mirror.requests == [(PATH, None)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(cuts=st.lists(st.integers(1, 4000), min_size=1, max_size=4))
def test_a_transfer_resumes_after_an_interruption(
    mirror: Mirror, tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    mirror.requests.clear()
    mirror.faults[PATH] = [Fault(cut=cut) for cut in cuts]
    content, _, progress = run(mirror, tmp_path_factory.mktemp("cut"))
    mirror.faults.clear()
    assert content == CONTENT
    assert progress == sorted(progress)
    starts = [0 if wanted is None else int(wanted[6:-1]) for _, wanted in mirror.requests]
    assert starts == [sum(cuts[:number]) for number in range(len(starts))]


@pytest.mark.parametrize("kept", [0, 1, 2500, 4999, 5000, 5001])
def test_a_partial_file_of_an_earlier_process_is_completed(mirror: Mirror, tmp_path: Path, kept: int) -> None:
    (tmp_path / "file.tgz.part").write_bytes((CONTENT + b"x")[:kept])
    assert run(mirror, tmp_path)[0] == CONTENT
    ranges = {0: None, 5001: None}
    assert mirror.requests == ([] if kept == 5000 else [(PATH, ranges.get(kept, f"bytes={kept}-"))])


@pytest.mark.parametrize(
    "faults",
    [
        [Fault(cut=700), Fault(no_ranges=True)],
        [Fault(cut=700), Fault(no_ranges=True, cut=300), Fault()],
        [Fault(status=503), Fault(status=429), Fault()],
        [Fault(cut=0), Fault(cut=0), Fault()],
        [Fault(cut=700, content=OTHER)],
        [Fault(content=CONTENT[:-1] + b"!")],
    ],
    ids=["ranges ignored", "ignored and cut", "busy", "nothing comes", "changed meanwhile", "a wrong byte"],
)
def test_the_result_is_that_of_an_uninterrupted_transfer(mirror: Mirror, tmp_path: Path, faults: list[Fault]) -> None:
    mirror.faults[PATH] = faults
    content, logged, _ = run(mirror, tmp_path)
    assert content == CONTENT
    assert logged


def test_a_damaged_file_is_downloaded_again(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file.tgz").write_bytes(OTHER)
    content, logged, _ = run(mirror, tmp_path)
    assert content == CONTENT
    assert logged == [f"{tmp_path / 'file.tgz'} is damaged; downloading it again"]


def test_a_wrong_file_is_rejected_after_a_second_download_and_not_kept(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files[PATH] = OTHER
    assert "a different file" in error_of(mirror, tmp_path)
    assert len(mirror.requests) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", b"<html>Please log in</html>"])
@pytest.mark.parametrize("no_ranges", [False, True])
def test_a_file_of_another_size_is_rejected_and_the_partial_file_stays(
    mirror: Mirror, tmp_path: Path, content: bytes, no_ranges: bool
) -> None:
    (tmp_path / "file.tgz.part").write_bytes(CONTENT[:700])
    mirror.faults[PATH] = [Fault(content=content, no_ranges=no_ranges)]
    assert "--mirror" in error_of(mirror, tmp_path)
    assert (tmp_path / "file.tgz.part").read_bytes() == CONTENT[:700]
    assert run(mirror, tmp_path)[0] == CONTENT


def test_a_missing_file_is_requested_only_once(mirror: Mirror, tmp_path: Path) -> None:
    del mirror.files[PATH]
    assert "404 Not Found" in error_of(mirror, tmp_path)
    assert len(mirror.requests) == 1


def test_the_download_fails_after_the_last_pause_and_the_partial_file_stays(mirror: Mirror, tmp_path: Path) -> None:
    mirror.faults[PATH] = [Fault(cut=700), *[Fault(status=503)] * 3]
    message = error_of(mirror, tmp_path)
    assert "503" in message
    assert "700 of 5,000 bytes are downloaded" in message
    assert run(mirror, tmp_path)[0] == CONTENT


def test_a_server_that_cannot_be_reached_is_an_error_of_one_line(mirror: Mirror, tmp_path: Path) -> None:
    mirror.stop()
    assert "Connection refused" in error_of(mirror, tmp_path)

"""Fetching a file: whatever goes wrong on the way, what gets its name is the file that was asked for."""

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mirror import Fault, Mirror

from transduce.corpora.get import download as module
from transduce.corpora.get.download import download, part_of
from transduce.errors import DataError

CONTENT = random.Random(1).randbytes(5000)
OTHER = random.Random(2).randbytes(5000)
PATH = "/some/file.tgz"


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setattr(module, "PAUSES", (0, 0, 0))
    with Mirror({PATH: CONTENT}) as mirror:
        yield mirror


def fetch(mirror: Mirror, folder: Path, size: int = len(CONTENT)) -> tuple[bytes, list[str], list[int]]:
    """The file as it was fetched, what was said, and how far it had come each time that was told."""
    said: list[str] = []
    moved: list[int] = []
    path = folder / "file.tgz"
    download(mirror.address + PATH, path, size, hashlib.sha256(CONTENT).hexdigest(), said.append, moved.append)
    assert not part_of(path).exists()
    return path.read_bytes(), said, moved


def refusal(mirror: Mirror, folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        fetch(mirror, folder)
    assert not (folder / "file.tgz").exists()
    message = str(caught.value)
    assert message.startswith(f"{mirror.address}{PATH}: ")
    assert "\n" not in message
    return message


def test_a_file_is_fetched_with_one_request_and_then_no_more(mirror: Mirror, tmp_path: Path) -> None:
    content, said, moved = fetch(mirror, tmp_path)
    assert (content, said, moved[0], moved[-1]) == (CONTENT, [], 0, 5000)
    assert fetch(mirror, tmp_path)[0] == CONTENT
    assert mirror.requests == [(PATH, None)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(cuts=st.lists(st.integers(1, 4000), min_size=1, max_size=4))
def test_a_transfer_goes_on_where_it_broke(
    mirror: Mirror, tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    mirror.requests.clear()
    mirror.faults[PATH] = [Fault(cut=cut) for cut in cuts]
    content, _, moved = fetch(mirror, tmp_path_factory.mktemp("cut"))
    mirror.faults.clear()
    assert content == CONTENT
    assert moved == sorted(moved)
    begun = [0 if wanted is None else int(wanted[6:-1]) for _, wanted in mirror.requests]
    assert begun == [sum(cuts[:number]) for number in range(len(begun))]


@pytest.mark.parametrize("kept", [0, 1, 2500, 4999, 5000, 5001])
def test_what_an_earlier_process_left_is_gone_on_with(mirror: Mirror, tmp_path: Path, kept: int) -> None:
    (tmp_path / "file.tgz.part").write_bytes((CONTENT + b"x")[:kept])
    assert fetch(mirror, tmp_path)[0] == CONTENT
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
def test_the_result_is_that_of_an_undisturbed_transfer(mirror: Mirror, tmp_path: Path, faults: list[Fault]) -> None:
    mirror.faults[PATH] = faults
    content, said, _ = fetch(mirror, tmp_path)
    assert content == CONTENT
    assert said


def test_a_damaged_file_is_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file.tgz").write_bytes(OTHER)
    content, said, _ = fetch(mirror, tmp_path)
    assert content == CONTENT
    assert said == [f"{tmp_path / 'file.tgz'} is damaged; fetching it again"]


def test_a_wrong_file_is_refused_after_a_second_look_and_not_kept(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files[PATH] = OTHER
    assert "another file" in refusal(mirror, tmp_path)
    assert len(mirror.requests) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", b"<html>Please log in</html>"])
@pytest.mark.parametrize("no_ranges", [False, True])
def test_a_file_of_another_size_is_refused_and_what_is_here_stays(
    mirror: Mirror, tmp_path: Path, content: bytes, no_ranges: bool
) -> None:
    (tmp_path / "file.tgz.part").write_bytes(CONTENT[:700])
    mirror.faults[PATH] = [Fault(content=content, no_ranges=no_ranges)]
    assert "--mirror" in refusal(mirror, tmp_path)
    assert (tmp_path / "file.tgz.part").read_bytes() == CONTENT[:700]
    assert fetch(mirror, tmp_path)[0] == CONTENT


def test_a_file_that_is_not_there_is_not_asked_for_twice(mirror: Mirror, tmp_path: Path) -> None:
    del mirror.files[PATH]
    assert "404 Not Found" in refusal(mirror, tmp_path)
    assert len(mirror.requests) == 1


def test_patience_ends_and_what_has_come_stays(mirror: Mirror, tmp_path: Path) -> None:
    mirror.faults[PATH] = [Fault(cut=700), *[Fault(status=503)] * 3]
    message = refusal(mirror, tmp_path)
    assert "503" in message
    assert "700 of 5,000 bytes are there" in message
    assert fetch(mirror, tmp_path)[0] == CONTENT


def test_a_server_that_is_not_there_is_one_line(mirror: Mirror, tmp_path: Path) -> None:
    mirror._server.server_close()
    assert "Connection refused" in refusal(mirror, tmp_path)
    mirror.__enter__()

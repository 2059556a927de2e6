"""The remembered sha256 of large files: not read again, unless anything about the file has changed."""

import hashlib
import os
from pathlib import Path

import pytest

from transduce.cache_folder import cache_folder
from transduce.data import remembered_digests as module
from transduce.data.remembered_digests import SMALLEST, remembered_digests


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_SETTLED", -1.0)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(b"a" * SMALLEST)
    return path


def digest_of(path: Path) -> str:
    with remembered_digests() as digests:
        return digests(path)


def true_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_large_file_is_read_once(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digest_of(large)
    assert first == true_digest(large)
    monkeypatch.setattr(module, "digest", lambda path: pytest.fail(f"{path} is read again"))
    assert digest_of(large) == first


@pytest.mark.parametrize("change", ["content", "size", "another file"])
def test_a_changed_file_is_read_again(change: str, large: Path) -> None:
    before = large.stat()
    digest_of(large)
    if change == "content":
        with large.open("r+b") as file:
            file.write(b"b")
    elif change == "size":
        large.write_bytes(b"a" * (SMALLEST + 1))
    else:
        large.with_name("other").write_bytes(b"c" * SMALLEST)
        large.with_name("other").replace(large)
    os.utime(large, ns=(before.st_atime_ns, before.st_mtime_ns))  # as tools do that keep the time of the content
    assert digest_of(large) == true_digest(large)


def test_a_file_that_has_just_changed_is_not_remembered(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SETTLED", 60.0)
    digest_of(large)
    assert not (cache_folder() / "digests.json").exists()


def test_small_files_are_not_remembered(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"a")
    assert digest_of(small) == true_digest(small)
    assert not (cache_folder() / "digests.json").exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"1:2": 3}', b'{"1:2": []}', b"\xff"])
def test_damaged_memory_is_ignored(content: bytes, large: Path) -> None:
    cache_folder().mkdir()
    (cache_folder() / "digests.json").write_bytes(content)
    assert digest_of(large) == true_digest(large)

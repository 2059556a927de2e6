"""The compiled library in the cache: used only if it is complete and nobody else can change it."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transduce.fast.native import library
from transduce.fast.native.library import load_library

# Compiles once for each command, and then copies what was compiled: the file is the word after -o.
COPYING_CC = """#!/bin/sh
for word; do
    if [ "$last" = -o ]; then out=$word; else command="$command $word"; fi
    last=$word
done
compiled="$(dirname "$0")/$(echo "$command" | cksum | tr -d ' ')"
if [ -e "$compiled" ]; then cp "$compiled" "$out"; else {cc} "$@" && cp "$out" "$compiled"; fi
"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program `cc`; to compile the library in each test would take most of the time."""
    folder = tmp_path_factory.mktemp("compiler")
    (folder / "cc").write_text(COPYING_CC.format(cc=shutil.which("cc")))
    (folder / "cc").chmod(0o755)
    return folder


@pytest.fixture
def cache(compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the library that is in use by this process stays loaded."""
    if load_library() is None:
        pytest.skip("no C compiler")
    monkeypatch.setenv("PATH", str(compiler), prepend=os.pathsep)
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        library, "flags_of", lambda _: ("-O0", "-shared", "-fPIC", "-pthread")
    )  # compiles in a fraction of the time
    return tmp_path / "cache"


def load() -> ctypes.CDLL | None:
    return load_library.__wrapped__()


def library_file(cache: Path) -> Path:
    (path,) = cache.glob("*.so")
    return path


def test_a_killed_compilation_leaves_nothing_in_the_cache(cache: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow-compiler"
    slow.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nsleep 600\n")
    slow.chmod(0o755)
    code = "from transduce.fast.native.library import load_library; load_library()"
    environment = {**os.environ, "TRANSDUCE_CACHE": str(cache), "CC": str(slow), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list(cache.iterdir()) == []


def test_the_library_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load()
    assert sorted(path.suffix for path in cache.iterdir()) == [".sha256", ".so"]
    monkeypatch.setattr(library, "_compile", lambda *_: pytest.fail("compiled again"))
    assert load()


def test_processes_that_start_together_compile_it_once(cache: Path, tmp_path: Path) -> None:
    assert load()
    compiled = library_file(cache).rename(tmp_path / "compiled.so")
    slow = tmp_path / "slow-compiler"
    slow.write_text(
        f'#!/bin/sh\necho >> {tmp_path}/calls; sleep 1\nwhile [ "$1" != -o ]; do shift; done\ncp {compiled} "$2"\n'
    )
    slow.chmod(0o755)
    code = "from transduce.fast.native.library import load_library; assert load_library()"
    environment = {**os.environ, "TRANSDUCE_CACHE": str(tmp_path / "new"), "CC": str(slow)}
    processes = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert (tmp_path / "calls").read_text() == "\n"


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "no digest", "digest of garbage"])
def test_a_damaged_library_is_compiled_again(cache: Path, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    assert load()
    path, good = library_file(cache), library_file(cache).read_bytes()
    path.rename(cache / "other")  # the file that is loaded must not change
    contents = {"truncated": good[: len(good) // 2], "changed": good[:-1] + b"?", "empty": b""}
    path.write_bytes(contents.get(damage, good))
    path.chmod(0o644)
    if damage == "no digest":
        path.with_suffix(".sha256").unlink()
    elif damage == "digest of garbage":
        path.with_suffix(".sha256").write_bytes(b"\xff")
    assert load()
    assert f"{path} is damaged; compiling it again" in caplog.text
    assert path.read_bytes() == good


@pytest.mark.parametrize("danger", ["world-writable", "group-writable", "folder", "symlink", "owner"])
def test_a_library_that_others_can_change_is_not_loaded(
    cache: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, danger: str
) -> None:
    assert load()
    path = library_file(cache)
    shutil.copy(path, cache / "evil")
    if danger == "symlink":
        path.unlink()
        path.symlink_to(cache / "evil")
    elif danger == "owner":
        if os.geteuid():
            pytest.skip("needs root, to give a file to another user")
        os.chown(path, 12345, 12345)
    elif danger == "folder":
        cache.chmod(0o777)
    else:
        path.chmod(0o646 if danger == "world-writable" else 0o664)
    loaded: list[str] = []
    load_one = ctypes.CDLL
    monkeypatch.setattr(library.ctypes, "CDLL", lambda name: loaded.append(name) or load_one(name))
    assert load()
    assert str(path) not in loaded
    assert "other users can write to" in caplog.text


def test_a_folder_like_tmp_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    cache.chmod(0o1777)
    assert load()
    monkeypatch.setattr(library, "_compile", lambda *_: pytest.fail("compiled again"))
    assert load()


def test_cc_may_have_flags(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -O2")
    assert load()
    assert library_file(cache)


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [("cc --no-such-flag", "no-such-flag"), ("cc '", "No closing quotation"), ("no-such-cc", "no such compiler")],
)
def test_a_compiler_that_cannot_be_used_is_reported(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compiler: str, reason: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert load() is None
    assert "the engine native is not available" in caplog.text
    assert reason in caplog.text


def test_a_full_cache_is_reported(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(library, "write_atomically", full)
    assert load()
    assert "the cache cannot be used, so native is compiled at every start" in caplog.text
    assert "No space left on device" in caplog.text
    assert not [*cache.iterdir()]

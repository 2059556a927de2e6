"""The compiled library of a wheel is used, if it is of these sources, on machines without a compiler."""

import ctypes
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from transduce.fast.native import library, prebuilt


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("prebuilt") / "prebuilt" / "library.so"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prebuilt, "FLAGS", (*prebuilt.FLAGS, "-O0"))  # compiling takes a fifth of the time
        prebuilt.compile_prebuilt(["cc"], path)
    return path


@pytest.fixture
def installed(compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the library in the place of a wheel's, on a machine without a compiler and with an empty cache."""
    monkeypatch.setattr(prebuilt, "PREBUILT", Path(shutil.copy(compiled, tmp_path / "library.so")))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    library.load_library.cache_clear()
    yield prebuilt.PREBUILT
    library.load_library.cache_clear()


def test_it_is_loaded_without_a_compiler(installed: Path, tmp_path: Path) -> None:
    loaded = library.load_library()
    assert isinstance(loaded, ctypes.CDLL)
    assert loaded._name == str(installed)
    assert not (tmp_path / "cache").exists()


def test_one_of_other_sources_is_not_loaded(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prebuilt, "source_digest", lambda: "another")
    assert library.load_library() is None


@pytest.mark.parametrize("content", [b"", b"not a library", None])
def test_a_damaged_one_is_not_loaded(installed: Path, content: bytes | None) -> None:
    if content is None:
        installed.unlink()
    else:
        installed.write_bytes(content)
    assert library.load_library() is None


def test_a_compiler_that_is_named_is_used_instead(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def compiled(compiler: object) -> ctypes.CDLL | None:
        asked.append(compiler)
        return prebuilt.load_prebuilt()

    monkeypatch.setattr(library, "_cached_or_compiled", compiled)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("CC", "cc -O1")
    assert library.load_library() is not None
    assert asked


def has_features(flags: list[str]) -> bool:
    """Whether the processor has the features that flags of the compiler name, which are one each on x86-64."""
    features = [flag.removeprefix("-m").replace("-", "") for flag in flags if not flag.startswith("-march")]
    return not features or {*features} <= {*Path("/proc/cpuinfo").read_text(encoding="utf-8").replace("_", "").split()}


def test_every_level_that_the_processor_has_multiplies_exactly(compiled: Path) -> None:
    best = prebuilt.load_prebuilt(compiled)
    assert best
    flags, _ = prebuilt.levels_of(f"{platform.machine()}-linux-gnu")
    levels = list(flags)
    found = []
    for level in levels[levels.index(best.level) :]:
        if not has_features(flags[level]):  # some processors with AVX-512 VNNI have no AVX VNNI
            continue
        usable = library._usable(prebuilt.load_prebuilt(compiled, level))
        assert usable, level
        found.append(usable.instructions())
    assert found[-1] == b"portable C"
    assert len(set(found)) >= len(found) - 1  # AMX's is that of AVX-512


def test_a_level_is_chosen_only_if_the_processor_has_all_its_features() -> None:
    flags, code = prebuilt.levels_of("x86_64-linux-gnu")
    assert list(flags)[-1] == "any"
    assert not flags["any"]
    for level, features in flags.items():
        (line,) = [line for line in code.splitlines() if f'return "{level}"' in line and "if" in line]
        assert all(f'supports("{flag.removeprefix("-m")}")' in line for flag in features)

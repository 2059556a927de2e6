"""The library of a wheel: one file with code for several levels of instructions."""

import platform
import shutil
from pathlib import Path

import pytest

from transduce.engines.native import prebuilt
from transduce.engines.native.library import _usable


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("prebuilt") / "library.so"
    prebuilt.compile_prebuilt([compiler], path)
    return path


def test_every_level_that_the_processor_has_multiplies_exactly(library: Path) -> None:
    best = prebuilt.load_prebuilt(library)
    assert best
    levels = list(prebuilt.levels_of(f"{platform.machine()}-linux-gnu")[0])
    found = []
    for level in levels[levels.index(best.level) :]:  # from the best that it has
        usable = _usable(prebuilt.load_prebuilt(library, level))
        assert usable, level
        found.append(usable.instructions())
    assert found[-1] == b"portable C"
    assert len(set(found)) >= len(found) - 1  # AMX's is that of AVX-512


def test_a_library_of_other_sources_is_not_used(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prebuilt, "source_digest", lambda: "other")
    assert prebuilt.load_prebuilt(library) is None
    assert prebuilt.load_prebuilt(library.with_name("missing.so")) is None


def test_a_level_is_chosen_only_if_the_processor_has_all_its_features() -> None:
    flags, code = prebuilt.levels_of("x86_64-linux-gnu")
    assert list(flags)[-1] == "any"
    assert not flags["any"]
    for level, features in flags.items():
        (line,) = [line for line in code.splitlines() if f'return "{level}"' in line and "if" in line]
        assert all(f'supports("{flag.removeprefix("-m")}")' in line for flag in features)

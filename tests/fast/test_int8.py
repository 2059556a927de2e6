"""The products of the native engine are those of whole numbers, to the last bit."""

import ctypes
import shutil
import subprocess
from ctypes import byref, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines import raw_tensor

from transduce.fast.native import library as native_library
from transduce.fast.native.library import load_library
from transduce.fast.native.prebuilt import FLAGS
from transduce.fast.native.structs import CHUNK, LARGE_GROUPS, PADDING
from transduce.fast.native.weights import Memory


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    found = load_library()
    if found is None:
        pytest.skip("no C compiler")
    return found


def in_whole_numbers(x: Any) -> tuple[Any, Any]:
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.where(scale > 0, np.float32(127) / np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-30), 0)
    return np.rint(x * inverse.astype(np.float32)).astype(np.int64), scale


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize(("width_in", "width_out"), [(1, 1), (16, 16), (20, 33), (512, 48), (100, 7)])
def test_a_linear_layer_multiplies_whole_numbers(library: Any, rows: int, width_in: int, width_out: int) -> None:
    random = np.random.default_rng(rows + width_in)
    x = random.normal(size=(rows, width_in)).astype(np.float32)
    weight = random.normal(size=(width_out, width_in)).astype(np.float32)
    bias = random.normal(size=width_out).astype(np.float32)
    x[0, 0], weight[0, 0] = 50.0, -50.0  # the ends of the range are used on both sides
    owner = Memory(library)
    layer, y = owner.linear(raw_tensor(weight), raw_tensor(bias)), np.full((rows, width_out), np.nan, np.float32)
    library.apply_linear(byref(layer), c_void_p(x.ctypes.data), rows, False, c_void_p(y.ctypes.data))

    (x_whole, x_scale), (w_whole, w_scale) = in_whole_numbers(x), in_whole_numbers(weight)
    sums = x_whole @ w_whole.T
    np.testing.assert_allclose(y, sums * (x_scale * w_scale.T) + bias, rtol=1e-5, atol=1e-5)
    assert np.abs(w_whole).max() == 127


def test_a_row_of_zeros_gives_the_bias(library: Any) -> None:
    owner = Memory(library)
    layer = owner.linear(raw_tensor(np.ones((3, 5), np.float32)), raw_tensor(np.array([1, 2, 3], np.float32)))
    x, y = np.zeros((2, 5), np.float32), np.empty((2, 3), np.float32)
    library.apply_linear(byref(layer), c_void_p(x.ctypes.data), 2, False, c_void_p(y.ctypes.data))
    assert y.tolist() == [[1, 2, 3]] * 2


def chunk_in_whole_numbers(x: Any) -> tuple[Any, Any]:
    """The scale is that of the largest group of four after the large groups."""
    padded = np.pad(np.abs(x), ((0, 0), (0, -x.shape[1] % PADDING)))
    groups = padded.reshape(len(x), -1, 4).max(axis=2)
    largest = np.sort(groups, axis=1)[:, ::-1]
    limit = np.maximum(largest[:, LARGE_GROUPS : LARGE_GROUPS + 1], largest[:, :1] / np.float32(128))
    return np.rint(x * (np.float32(127) / limit)).astype(np.int64), limit / np.float32(127)


@pytest.mark.parametrize("rows", [1, 2, 5, 9, 40])
@pytest.mark.parametrize(("width_in", "width_out"), [(1, 1), (20, 33), (CHUNK, 16), (576, 96), (1000, 70)])
def test_a_layer_of_a_language_model_multiplies_whole_numbers(
    library: Any, rows: int, width_in: int, width_out: int
) -> None:
    random = np.random.default_rng(rows + width_in)
    x = random.normal(size=(rows, width_in)).astype(np.float32)
    x[:, :: random.integers(1, 90)] *= 40
    x[0, 0] = 3000
    weight = random.normal(size=(width_out, width_in)).astype(np.float32)
    bias = random.normal(size=width_out).astype(np.float32)
    owner = Memory(library, chunked=True)
    layer, y = owner.linear(raw_tensor(weight), raw_tensor(bias)), np.full((rows, width_out), np.nan, np.float32)
    library.apply_linear(byref(layer), c_void_p(x.ctypes.data), rows, True, c_void_p(y.ctypes.data))

    expected, magnitude = bias.astype(np.float64), 0.0
    for begin in range(0, width_in, CHUNK):
        x_whole, x_scale = chunk_in_whole_numbers(x[:, begin : begin + CHUNK])
        w_whole, w_scale = in_whole_numbers(weight[:, begin : begin + CHUNK])
        part = (x_whole @ w_whole.T) * (x_scale.astype(np.float64) * w_scale.T)
        expected, magnitude = expected + part, magnitude + np.abs(part)
        assert np.abs(x_whole).max() <= 127 * 128
        assert (np.sort(np.abs(x_whole))[:, : -4 * LARGE_GROUPS] <= 127).all()
    assert (np.abs(y - expected) <= 1e-6 * magnitude + 1e-5).all()


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The form without special instructions, compiled here."""
    path, compiler = tmp_path_factory.mktemp("portable") / "portable.so", shutil.which("cc")
    assert compiler
    flags = ["-shared", "-fPIC", "-U__ARM_FEATURE_DOTPROD", "-U__AVX2__", "-U__AVX512BW__"]
    subprocess.run([compiler, *flags, str(native_library.DECODER), "-o", str(path), "-lm"], check=True)
    return ctypes.CDLL(str(path))


@pytest.mark.parametrize("chunked", [False, True])
def test_portable_code_and_fast_code_agree(library: Any, portable: Any, chunked: bool) -> None:
    portable.instructions.restype = ctypes.c_char_p
    assert portable.instructions() == b"portable C"
    random = np.random.default_rng(0)
    weight, x = (random.normal(size=(n, 700)).astype(np.float32) for n in (40, 6))
    outputs = []
    for one in (library, portable):
        owner = Memory(one, chunked=chunked)
        layer, y = owner.linear(raw_tensor(weight), None), np.empty((6, 40), np.float32)
        one.apply_linear(byref(layer), c_void_p(x.ctypes.data), 6, chunked, c_void_p(y.ctypes.data))
        outputs.append(y)
    np.testing.assert_allclose(*outputs, rtol=1e-6, atol=1e-5)


def test_without_a_compiler_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert load_library.__wrapped__() is None


def test_a_compiler_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("CC", "false")
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    assert load_library.__wrapped__() is None
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_library_that_multiplies_wrongly_is_not_used(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        def __getattr__(self, name: str) -> Any:
            return getattr(library, name)

        def apply_linear(self, *_: Any) -> None:
            """Leave zeros."""

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Wrong())
    assert load_library.__wrapped__() is None


def test_without_a_place_to_keep_it_the_library_is_temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    compiled = load_library()
    assert compiled is not None
    monkeypatch.setattr(native_library, "_compile", lambda _, path: Path(shutil.copy(compiled._name, path)))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "file" / "cache"))
    library = load_library.__wrapped__()
    assert library is not None
    assert not Path(library._name).exists()


def test_blocks_of_all_sizes_are_exact(tmp_path: Path) -> None:
    """Random products of 1 to 70 rows with extreme and random numbers, in parts as threads compute them."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source = Path(__file__).parents[2] / "benchmarks" / "int8_products.c"
    flags = [flag for flag in FLAGS if flag != "-shared"]
    subprocess.run(["cc", *flags, "-march=native", source, "-o", tmp_path / "products", "-lm"], check=True)
    outcome = subprocess.run([tmp_path / "products", "0"], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout
    assert "exact in 300 random products" in outcome.stdout

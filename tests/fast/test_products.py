"""Matrix products by the fastest algorithm, against torch's own; what is chosen is kept in the cache."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from kernel_tensors import DEVICE, draw
from torch import Tensor

from transduce.fast.kernels import products
from transduce.fast.kernels.products import FastestProducts

needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
N, D, M = (64, 32, 48) if DEVICE == "cpu" else (2048, 512, 1024)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path))
    products._choices.cache_clear()
    yield tmp_path / "products.json"
    products._choices.cache_clear()


def several(dtype: torch.dtype) -> list[Tensor]:
    """Products of all kinds, of matrices that are stored by rows and by columns."""
    x, weight, dy = (draw(*shape, seed=seed).to(dtype) for seed, shape in enumerate(((N, D), (M, D), (N, M))))
    bias = draw(M).to(dtype)
    wide = x.new_empty(N, M + 64)[:, :M]
    torch.mm(x, weight.t(), out=wide)
    return [
        x @ weight.t(), dy @ weight, dy.t() @ x, wide,
        torch.addmm(bias, x, weight.t()), torch._addmm_activation(bias, x, weight.t()),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_are_those_of_torch(dtype: torch.dtype) -> None:
    expected = several(dtype)
    with FastestProducts():
        found = several(dtype)
    for result, wanted in zip(found, expected, strict=True):
        assert (result.double() - wanted.double()).norm() <= 0.005 * wanted.double().norm()
        assert result.stride() == wanted.stride()


def test_gradients_take_the_fastest_products_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(products, "_cublas_lt", object)
    monkeypatch.setattr(products, "_product", lambda func, args, kwargs: seen.append(func.overloadpacket))
    weight = draw(8, 16).requires_grad_()
    with FastestProducts():
        (draw(4, 16).requires_grad_() @ weight.t()).sum().backward()
    assert seen.count(torch.ops.aten.mm) == 3


@needs_gpu
def test_choices_are_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FastestProducts():
        expected = several(torch.bfloat16)
    (machine, numbers), *others = json.loads(cache.read_text()).items()
    assert torch.cuda.get_device_name() in machine
    assert not others
    assert len(numbers) == 6
    products._choices.cache_clear()  # as in another process
    monkeypatch.setattr(products._Plan, "fastest", None)
    with FastestProducts():
        found = several(torch.bfloat16)
    assert all(map(torch.equal, found, expected))


@needs_gpu
@pytest.mark.parametrize("content", ["", "[]", "[1]", '{"%s": 3}', '{"%s": {"x": "y"}}', '{"%s": {"%s": 99}}'])
def test_a_damaged_file_is_written_again(cache: Path, content: str) -> None:
    with FastestProducts():
        several(torch.bfloat16)
    written = cache.read_text()
    machine, numbers = next(iter(json.loads(written).items()))
    cache.write_text(content.replace("%s", machine, 1).replace("%s", next(iter(numbers)), 1))
    products._choices.cache_clear()
    with FastestProducts():
        several(torch.bfloat16)
    assert json.loads(cache.read_text())[machine].keys() >= numbers.keys()

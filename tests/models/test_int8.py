"""The 8-bit form of a model is, to the native engine, the model itself."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engines import raw_tensor
from helpers import random_sentences, small_model

from transduce.fast.native.engine import NativeEngine
from transduce.fast.native.library import load_library
from transduce.fast.native.weights import Memory
from transduce.models.any_model import AnyModel
from transduce.models.folder import load_model, read_model, save_model
from transduce.models.weight_tensors import from_int8, to_int8
from transduce.models.weights_file import LARGEST, Int8Matrix, is_matrix
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import Tokenizer


def int8_matrix(stored: dict[str, torch.Tensor], name: str) -> Int8Matrix:
    return Int8Matrix(raw_tensor(stored[name].numpy()), raw_tensor(stored[name + LARGEST].numpy()))


def read_back(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    weights = {name: x for name, x in stored.items() if not name.endswith(LARGEST)}
    matrices = [name for name, x in weights.items() if is_matrix(name, tuple(x.shape))]
    return weights | {name: from_int8(stored[name], stored[name + LARGEST]) for name in matrices}


def searched(model: AnyModel) -> list[list[Hypothesis]]:
    library = load_library()
    if library is None:
        pytest.skip("no C compiler")
    jobs = [Job(tokens, []) for tokens in random_sentences([1, 4, 9, 14], model.vocab_size, seed=3)]
    return search_all(NativeEngine(model, library, threads=2), jobs, SearchConfig(beam=4, nbest=4, max_extra=3))


@pytest.mark.parametrize(
    "kind", [{}, {"positions": "learned"}, {"norm": "pre", "d_k": 5, "d_v": 3}, {"decoder_cell": "ssru"}]
)
def test_the_native_engine_finds_the_same_to_the_last_bit(kind: Any, toy_tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = small_model(vocab_size=toy_tokenizer.vocab_size, **kind)
    save_model(tmp_path / "float", model, toy_tokenizer, {})
    save_model(tmp_path / "int8", model, toy_tokenizer, {}, precision="int8")
    whole, small = (load_model(tmp_path / name).model for name in ("float", "int8"))
    assert not torch.equal(whole.embedding.weight_VD, small.embedding.weight_VD)  # or this would show nothing
    assert searched(whole) == searched(small)
    assert searched(read_model(tmp_path / "float")) == searched(read_model(tmp_path / "int8")) == searched(small)


def rows_of_all_sizes() -> torch.Tensor:
    """Thousands of rows of any magnitude, since one in 128 would be off if largest / 127 were stored."""
    generator = torch.Generator().manual_seed(1)
    sizes_N1 = torch.exp(20 * torch.randn(5000, 1, generator=generator).clamp(-3, 3))
    x_ND = torch.randn(5000, 33, generator=generator) * sizes_N1
    x_ND[7] = 0
    return x_ND


def test_what_is_read_back_is_stored_as_the_same_whole_numbers() -> None:
    stored = to_int8({"a.weight": rows_of_all_sizes()})
    again = to_int8(read_back(stored))
    assert stored.keys() == again.keys() == {"a.weight", "a.weight" + LARGEST}
    assert all(torch.equal(stored[name], again[name]) for name in stored)
    assert stored["a.weight"].abs().max() == 127


def test_no_weight_moves_by_more_than_half_a_step() -> None:
    x_ND = rows_of_all_sizes()
    step_N1 = x_ND.abs().amax(dim=1, keepdim=True).double() / 127
    moved_ND = (read_back(to_int8({"a.weight": x_ND}))["a.weight"].double() - x_ND).abs()
    assert (moved_ND <= step_N1 * 0.50001).all()


def test_the_native_engine_makes_the_same_of_a_matrix_and_of_its_8_bit_form() -> None:
    library = load_library()
    if library is None:
        pytest.skip("no C compiler")
    x_ND = rows_of_all_sizes()
    memory = Memory(library)

    def packed(weight: Any) -> tuple[bytes, bytes, bytes]:
        made = memory.linear(weight, None)
        rows = made.panels * 16
        sizes = (made.weight, rows * made.padded_in), (made.scale, rows * 4), (made.start, rows * 4)
        return tuple(ctypes.string_at(*one) for one in sizes)

    stored = to_int8({"a.weight": x_ND})
    assert (
        packed(raw_tensor(x_ND.numpy()))
        == packed(raw_tensor(read_back(stored)["a.weight"].numpy()))
        == packed(int8_matrix(stored, "a.weight"))
    )
    # Integers that another program wrote: without 127, with -128, of a largest magnitude of zero or below.
    q_ND = np.random.default_rng(1).integers(-100, 100, size=x_ND.shape).astype(np.int8)
    q_ND[1, 3], q_ND[2, 3] = -128, 127
    largest_N = np.random.default_rng(2).normal(size=len(x_ND)).astype(np.float32)
    largest_N[3] = 0
    weights_ND = from_int8(torch.from_numpy(q_ND), torch.from_numpy(largest_N))
    foreign = Int8Matrix(raw_tensor(q_ND), raw_tensor(largest_N))
    assert packed(foreign) == packed(raw_tensor(weights_ND.numpy()))


def test_rows_of_integers_times_one_number_keep_their_integers() -> None:
    """As in a model that another toolkit stored in 8 bits with one scale for a matrix: nothing is lost."""
    library = load_library()
    if library is None:
        pytest.skip("no C compiler")
    q_NK = np.random.default_rng(1).integers(-127, 128, size=(300, 40)) * np.linspace(0, 1, 300)[:, None]
    q_NK = np.rint(q_NK).astype(np.int8)  # the first row is 0; the largest integers of others are 1 to 127
    q_NK[5], q_NK[6] = 2, np.where(np.arange(40) == 3, -9, 0)  # a multiple, and one number
    scale = np.float32(0.0123)
    x_NK = q_NK.astype(np.float32) / (1 / scale)
    stored = to_int8({"a.weight": torch.from_numpy(x_NK)})
    np.testing.assert_allclose(read_back(stored)["a.weight"], x_NK, rtol=1e-6)
    memory = Memory(library)
    for weight in (raw_tensor(x_NK), int8_matrix(stored, "a.weight")):
        layer = memory.linear(weight, None)
        packed = np.frombuffer(ctypes.string_at(layer.weight, layer.panels * 16 * layer.padded_in), np.int8)
        packed_NK = packed.reshape(layer.panels, -1, 16, 4).transpose(0, 2, 1, 3).reshape(layer.panels * 16, -1)
        scale_N = np.frombuffer(ctypes.string_at(layer.scale, layer.panels * 16 * 4), np.float32)
        np.testing.assert_allclose(packed_NK[:300, :40] * scale_N[:300, None], x_NK, rtol=1e-6)


def test_only_matrices_are_rounded() -> None:
    weights = small_model(positions="learned").state_dict()
    back = read_back(to_int8(weights))
    assert back.keys() == weights.keys()
    for name, x in weights.items():
        assert torch.equal(back[name], x) != is_matrix(name, tuple(x.shape)), name
    assert not is_matrix("embedding.positions.table_TD", (64, 16))


def test_loading_draws_nothing_at_random(toy_tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = small_model(vocab_size=toy_tokenizer.vocab_size, positions="learned")
    save_model(tmp_path / "model", model, toy_tokenizer, {})
    before = torch.get_rng_state()
    loaded = load_model(tmp_path / "model").model
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(x, loaded.state_dict()[name]) for name, x in model.state_dict().items())

"""The fast engines, and the plain engine that each must agree with."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from transduce.data.batch import Stream
from transduce.fast import kernels
from transduce.fast.native.engine import NativeEngine
from transduce.fast.native.library import load_library
from transduce.fast.native.structs import CHUNK, LARGE_GROUPS, PADDING
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_decoder import DecoderState, EncoderDecoder
from transduce.models.weights_file import RawTensor
from transduce.nn.cache import SourceKV, TensorKVCache
from transduce.nn.linear import Linear
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Engine, Job, search_all
from transduce.search.options import SearchConfig
from transduce.search.plain_engine import PlainEngine

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # on a CPU, through Triton's interpreter
TOLERANCE = 1e-3
"""Maximum difference of log-probabilities and of scores."""
TIE = 1e-5
"""Hypotheses whose scores differ by less than this may be in either order."""
ROUNDING_TIES = (3e-5, 1e-4, 3e-4)
"""Activations this close to halfway between two integers may be rounded either way."""
ATTEMPTS = 20


def gpu_engine(model: EncoderDecoder) -> Engine:
    if not kernels.HAS_TRITON:
        pytest.skip("no Triton")
    from transduce.fast.gpu.engine import GpuEngine

    return GpuEngine(copy.deepcopy(model).to(DEVICE), torch.float32)


def native_engine(model: EncoderDecoder, threads: int = 2) -> Engine:
    library = load_library()
    if library is None:
        pytest.skip("no C compiler")
    return NativeEngine(model, library, threads)


FAST: dict[str, Callable[[EncoderDecoder], Engine]] = {"gpu": gpu_engine, "native": native_engine}


def raw_tensor(x: npt.NDArray[Any]) -> RawTensor:
    """An array of floats or of 8-bit integers as the native engine reads it."""
    return RawTensor("I8" if x.dtype == np.int8 else "F32", x.shape, x.copy().reshape(-1).view(np.uint8).data)


def quantise_rows(x_ND: Tensor, noise: float = 0.0) -> Tensor:
    """Round each row to integers in -127..127 times its scale, in double precision so that products are exact."""
    largest_N1 = x_ND.abs().amax(dim=1, keepdim=True).clamp(min=1e-30)
    q_ND = x_ND * (_127 / largest_N1)
    if noise:
        q_ND += noise * (2 * torch.rand_like(q_ND) - 1)
    return q_ND.round().double() * (largest_N1.double() / 127)


def quantise_in_two_parts(x_ND: Tensor, noise: float = 0.0) -> Tensor:
    """Round each row to integers, and what these leave to integers with a scale 254 times as small."""
    largest_N1 = x_ND.abs().amax(dim=1, keepdim=True).clamp(min=1e-30)
    q_ND = x_ND * (_127 / largest_N1)
    if noise:
        q_ND += noise * (2 * torch.rand_like(q_ND) - 1)
    first_ND = q_ND.round()
    second_ND = (254 * (q_ND - first_ND)).round()
    return (first_ND.double() + second_ND.double() / 254) * (largest_N1.double() / 127)


def quantise_in_chunks(x_ND: Tensor, noise: float = 0.0) -> Tensor:
    """Round each chunk of a row to integers, with the scale of the largest group of four after the large groups."""
    return torch.cat([_quantise_chunk(x_NK, noise) for x_NK in x_ND.split(CHUNK, dim=1)], dim=1)


def _quantise_chunk(x_NK: Tensor, noise: float) -> Tensor:
    groups_NG = functional.pad(x_NK.abs(), (0, -x_NK.shape[1] % PADDING)).unflatten(1, (-1, 4)).amax(dim=2)
    top_NG = groups_NG.topk(LARGE_GROUPS + 1, dim=1).values
    limit_N1 = torch.maximum(top_NG[:, -1:], top_NG[:, :1] / 128).clamp(min=1e-30)
    q_NK = x_NK * (_127 / limit_N1)
    if noise:
        q_NK += noise * (q_NK.abs() / 127).clamp(min=1) * (2 * torch.rand_like(q_NK) - 1)
    return q_NK.round().double() * (limit_N1.double() / 127)


def quantise_weights_in_chunks(weight_NK: Tensor) -> Tensor:
    return torch.cat([quantise_rows(part_NK) for part_NK in weight_NK.split(CHUNK, dim=1)], dim=1)


_127 = torch.tensor(127.0)  # 127.0 / largest_N1 would be 127 times a reciprocal, rounded twice


Rounding = Callable[[Tensor, float], Tensor]


def quantise_linear_layers(
    model: nn.Module,
    noise: float,
    rounded: Rounding = quantise_rows,
    weights: Callable[[Tensor], Tensor] = quantise_rows,
) -> None:
    """Let all linear layers of a model multiply 8-bit integers."""

    class QuantisedLinear(Linear):
        def forward(self, x_ND: Tensor, *, relu: bool = False, bias: bool = True) -> Tensor:
            y_ND = (rounded(x_ND, noise) @ self.quantised.T).float()
            y_ND = y_ND if self.bias is None else y_ND + self.bias
            return y_ND.relu() if relu else y_ND

    for module in model.modules():
        if isinstance(module, Linear):
            module.__class__, module.quantised = QuantisedLinear, weights(module.weight.data)


def quantised_language_model(model: DecoderOnly, noise: float = 0.0) -> DecoderOnly:
    """A copy of a language model that multiplies integers in chunks: the definition of `native`."""

    class QuantisedLanguageModel(DecoderOnly):
        def logits(self, hidden_RD: Tensor) -> Tensor:
            logits_RV = (quantise_in_chunks(hidden_RD, noise) @ self.quantised_VD.T).float()
            return logits_RV if self.output_bias_V is None else logits_RV + self.output_bias_V

    result, weights = copy.deepcopy(model), quantise_weights_in_chunks
    result.__class__, result.quantised_VD = QuantisedLanguageModel, weights(result.output_weight_VD.data)
    result.embedding.weight_VD.data = weights(result.embedding.weight_VD.data).float()
    quantise_linear_layers(result, noise, quantise_in_chunks, weights)
    return result


def in_bfloat16(x: Tensor) -> Tensor:
    return x.bfloat16().float()


class HalfCache(TensorKVCache):
    """A cache whose numbers are rounded to bfloat16."""

    def append(self, k_RHK: Tensor, v_RHK: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        return super().append(in_bfloat16(k_RHK), in_bfloat16(v_RHK))


def quantised(model: EncoderDecoder, noise: float = 0.0) -> EncoderDecoder:
    """A copy of the model that multiplies 8-bit integers and keeps bfloat16 caches: the definition of `native`."""

    # Small models, which have SSRUs, have activations of two parts, and float32 caches.
    in_two_parts = model.config.decoder_cell == "ssru"
    rounded = quantise_in_two_parts if in_two_parts else quantise_rows

    class QuantisedModel(EncoderDecoder):
        def start(self, src: Stream) -> DecoderState:
            state = super().start(src)
            for cache in [] if in_two_parts else state.caches:
                cache.__class__ = HalfCache
                assert cache.source
                cache.source = SourceKV(
                    in_bfloat16(cache.source.k_BHSK), in_bfloat16(cache.source.v_BHSK), cache.source.mask_B11S
                )
            return state

        def logits(self, hidden_RD: Tensor) -> Tensor:
            logits_RV = (rounded(hidden_RD, noise) @ self.quantised_VD.T).float()
            return logits_RV if self.output_bias_V is None else logits_RV + self.output_bias_V

    result = copy.deepcopy(model)
    result.__class__, result.quantised_VD = QuantisedModel, quantise_rows(result.output_weight_VD.data)
    result.embedding.weight_VD.data = quantise_rows(result.embedding.weight_VD.data).float()
    if result.source_weight_VD is not None:
        result.source_weight_VD.data = quantise_rows(result.source_weight_VD.data).float()
    result.reserve(1024 if model.longest is None else 1)
    quantise_linear_layers(result, noise, rounded)
    return result


def plain(name: str, model: EncoderDecoder, noise: float = 0.0) -> PlainEngine:
    """The plain engine that an engine must agree with."""
    return PlainEngine(quantised(model, noise) if name == "native" else model)


def assert_same(actual: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert same(ours, theirs), f"{ours}\nis not\n{theirs}"


def same(ours: list[Hypothesis], theirs: list[Hypothesis]) -> bool:
    """Whether two n-best lists are equal but for ties."""

    def close(a: Hypothesis, b: Hypothesis) -> bool:
        return max(abs(a.log_prob - b.log_prob), abs(a.score - b.score)) < TOLERANCE

    def tied(a: Hypothesis, b: Hypothesis) -> bool:
        return any(a.tokens == other.tokens and abs(other.score - b.score) < TIE for other in theirs)

    return len(ours) == len(theirs) and all(
        close(a, b) and (a.tokens == b.tokens or tied(a, b)) for a, b in zip(ours, theirs, strict=True)
    )


def assert_conforms(
    name: str, model: EncoderDecoder, job: Job, search: SearchConfig, ours: list[Hypothesis], theirs: list[Hypothesis]
) -> None:
    """The output of `native` may also equal that of the plain engine with rounding ties resolved in another way.

    C adds float32 numbers in another order, so in about one job of a hundred an activation is rounded up by one engine
    and down by the other.
    """
    if name == "native" and not same(ours, theirs):
        torch.manual_seed(0)
        for noise in ROUNDING_TIES * ATTEMPTS:
            (other,) = search_all(plain(name, model, noise), [job], search)
            if same(ours, other):
                return
    assert_same([ours], [theirs])

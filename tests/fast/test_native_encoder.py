"""Encoders of texts in the native engine: the vectors of `plain`, but for rounding to two 8-bit integers."""

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from helpers import FIRST_WORD, randomize

from transduce.data.batch import Batch
from transduce.encoders.text_encoder import TextEncoder
from transduce.errors import ConfigError
from transduce.fast.choose import pick_encoder
from transduce.fast.native.encoder import NativeEncoder
from transduce.fast.native.library import load_library
from transduce.fast.native.structs import ENCODER_TOKENS
from transduce.models.encoder_only import EncoderOnly, EncoderOnlyConfig
from transduce.tokenizers.tokenizer import Tokenizer

VOCABULARY = 50
STYLES: dict[str, dict[str, Any]] = {
    "paper": {},
    "bert": {"positions": "learned", "max_positions": 400, "activation": "gelu", "embedding": "normalized"},
    "pre-norm": {"norm": "pre", "norm_type": "rms", "activation": "swish", "bias": False, "embedding": "plain"},
    "odd": {"d_model": 23, "d_ff": 71, "num_heads": 3, "d_k": 5, "d_v": 9, "activation": "gelu_tanh"},
}


def make_model(**settings: Any) -> EncoderOnly:
    sizes = {"d_model": 32, "d_ff": 64, "num_heads": 4, "layers": 2, **settings}
    model = EncoderOnly(EncoderOnlyConfig(**sizes), VOCABULARY).eval()
    randomize(model, 1)
    return model


def native(model: EncoderOnly, threads: int = 2) -> NativeEncoder:
    library = load_library()
    if library is None:
        pytest.skip("no C compiler")
    return NativeEncoder(model, library, threads)


def texts_of(*lengths: int) -> list[list[int]]:
    draw = random.Random(1)
    return [[draw.randrange(FIRST_WORD, VOCABULARY) for _ in range(length)] for length in lengths]


@torch.inference_mode()
def plain(model: EncoderOnly, texts: list[list[int]]) -> npt.NDArray[np.float32]:
    vectors: npt.NDArray[np.float32] = model.encode(Batch.of(torch.device("cpu"), text=texts))[0].numpy()
    return vectors


@pytest.mark.parametrize("style", STYLES)
def test_vectors_are_those_of_the_model(style: str) -> None:
    model = make_model(**STYLES[style])
    texts = texts_of(3, 1, ENCODER_TOKENS + 9, 20, 100, 7, 60)  # several passes, one of them for a long text
    expected_ND = plain(model, texts)
    difference = np.abs(native(model).encode(texts) - expected_ND).max()
    assert 0 < difference < 1e-3 * np.abs(expected_ND).max()


def test_vectors_do_not_depend_on_threads_or_on_other_texts() -> None:
    model = make_model(**STYLES["bert"])
    texts = texts_of(5, 90, 60, 5)
    together = np.split(native(model, 3).encode(texts), np.cumsum([len(text) for text in texts])[:-1])
    encoder = native(model, 1)
    for text, vectors_TD in zip(texts, together, strict=True):
        assert (encoder.encode([text]) == vectors_TD).all()
    assert encoder.encode([]).shape == (0, 32)


@pytest.mark.parametrize(
    "settings", [{"activation": "swiglu"}, {"kv_heads": 2}, {"positions": "rotary"}, {"neighbourhood": 3}]
)
def test_what_the_engine_does_not_compute_is_refused_or_plain(settings: dict[str, Any]) -> None:
    model = make_model(**settings)
    with pytest.raises(ConfigError, match=r"engine native has no .*; use auto or plain"):
        pick_encoder("native", model)
    assert pick_encoder("auto", model) is None


def test_text_encoders_use_the_engine(toy_tokenizer: Tokenizer) -> None:
    torch.manual_seed(1)
    config = EncoderOnlyConfig(d_model=32, d_ff=64, num_heads=4, layers=2)
    model = EncoderOnly(config, toy_tokenizer.vocab_size).eval()
    native(model)  # skips without a compiler
    texts = ["ba bo", "", "bo bo ba bo"]
    vectors = {
        name: TextEncoder(model, toy_tokenizer, engine=name).embed(texts) for name in ("plain", "native", "auto")
    }
    assert (vectors["auto"] == vectors["native"]).all()
    assert vectors["native"] == pytest.approx(vectors["plain"], abs=1e-3)
    assert (vectors["native"] != vectors["plain"]).any()
    with pytest.raises(ConfigError, match="engine must be one of auto, plain, native, not 'gpu'"):
        TextEncoder(model, toy_tokenizer, engine="gpu")

"""The alignment of the native engine: the model's own attention, up to 8-bit integers, in any batch."""

from typing import Any

import numpy as np
import pytest
from engines import native_engine
from helpers import random_sentences, small_model

from transduce.models.given_outputs import attention_weights

V = 300
KINDS: list[dict[str, Any]] = [
    {},
    {"positions": "learned", "decoder_layers": 6},
    {"norm": "pre", "d_k": 5, "d_v": 3, "output_bias": True},
]
SOURCES = random_sentences([7, 1, 12, 3, 30], V, seed=1)
PAIRS = list(zip(SOURCES, random_sentences([5, 9, 1, 0, 28], V, seed=2), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_the_attention_is_that_of_the_model(kind: Any) -> None:
    model = small_model(vocab_size=V, **kind)
    weights = native_engine(model, 2).attention_weights(PAIRS)
    for weights_TS, expected_TS in zip(weights, attention_weights(model, PAIRS), strict=True):
        assert weights_TS.shape == expected_TS.shape
        assert np.allclose(weights_TS.sum(axis=1), 1, atol=1e-5)
        assert np.abs(weights_TS - expected_TS).max() < 0.06 * expected_TS.max()


def test_it_depends_neither_on_the_batch_nor_on_the_threads() -> None:
    model = small_model(vocab_size=V)
    together = native_engine(model, 2).attention_weights(PAIRS)
    single = native_engine(model, 1)
    for pair, weights_TS in zip(PAIRS, together, strict=True):
        assert np.array_equal(single.attention_weights([pair])[0], weights_TS)

"""The forward pass in numpy is that of the torch module."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import random_sentences, small_model

from transduce.models.given_outputs import attention_weights, can_align, token_log_probs, token_statistics
from transduce.models.saved import save_model
from transduce.models.stored import read_model
from transduce.text.tokenizer import Tokenizer

KINDS: list[dict[str, Any]] = [
    {},
    {"positions": "learned", "decoder_layers": 6},
    {"norm": "pre", "d_k": 5, "d_v": 3, "output_bias": True},
]


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_that_of_the_module(kind: Any, precision: Any, toy_tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_model(tmp_path, small_model(vocab_size=toy_tokenizer.vocab_size, **kind), toy_tokenizer, {}, precision)
    stored = read_model(tmp_path)
    module = stored.module()
    sources = random_sentences([7, 1, 12, 3], stored.vocab_size, seed=1)
    pairs = list(zip(sources, random_sentences([5, 9, 1, 0], stored.vocab_size, seed=2), strict=True))
    assert can_align(stored)
    assert can_align(module)
    for ours, theirs in zip(attention_weights(stored, pairs), attention_weights(module, pairs), strict=True):
        assert ours.shape == theirs.shape
        assert np.allclose(ours, theirs, atol=1e-5)
    for ours, theirs in zip(token_statistics(stored, pairs), token_statistics(module, pairs), strict=True):
        for name in ("log_prob_T", "entropy_T", "attention_T"):
            assert np.allclose(getattr(ours, name), getattr(theirs, name), atol=1e-3), name
    ours, theirs = (np.concatenate(token_log_probs(model, pairs)) for model in (stored, module))
    assert np.allclose(ours, theirs, atol=1e-3)

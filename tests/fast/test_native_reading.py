"""What the native engine reads in given outputs: as the module with the same 8-bit weights, in any batch."""

from pathlib import Path
from typing import Any

import pytest
from engines import native_engine
from helpers import random_sentences, small_model

from transduce.models.folder import read_model, save_model
from transduce.models.likelihood import ModuleReader
from transduce.tokenizers.tokenizer import Tokenizer

KINDS: list[dict[str, Any]] = [
    {},
    {"positions": "learned", "decoder_layers": 6},
    {"norm": "pre", "d_k": 5, "d_v": 3, "output_bias": True},
    {"positions": "marian", "activation": "swish"},
    {"positions": "fairseq", "norm": "pre", "decoder_tag": True},
    {
        "positions": "learned",
        "share_positions": False,
        "embedding": "normalized",
        "activation": "gelu",
        "tie_output": False,
    },
    {"decoder_cell": "ssru"},
    {"decoder_cell": "ssru", "norm": "pre", "decoder_layers": 3},
]
LENGTHS = [(7, 5), (1, 9), (12, 1), (3, 0), (30, 28)]


def random_pairs(vocab_size: int) -> list[tuple[list[int], list[int]]]:
    sources, outputs = zip(*LENGTHS, strict=True)
    sides = (random_sentences(list(lengths), vocab_size, seed=seed) for seed, lengths in enumerate([sources, outputs]))
    return list(zip(*sides, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_the_module_predicts(kind: Any, toy_tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_model(tmp_path, small_model(vocab_size=toy_tokenizer.vocab_size, **kind), toy_tokenizer, {}, "int8")
    stored = read_model(tmp_path)
    engine: Any = native_engine(stored)
    module, pairs = ModuleReader(stored.module()), random_pairs(stored.vocab_size)
    assert stored.aligns
    assert engine.aligns
    assert module.aligns
    for ours, theirs in zip(engine.attention_weights(pairs), module.attention_weights(pairs), strict=True):
        assert [len(row) for row in ours] == [len(row) for row in theirs]
        assert all(row == pytest.approx(expected, abs=1e-4) for row, expected in zip(ours, theirs, strict=True))
        assert [sum(row) for row in ours] == pytest.approx([1.0] * len(ours), abs=1e-5)
    for ours, theirs in zip(engine.token_statistics(pairs), module.token_statistics(pairs), strict=True):
        for name in ("log_prob_T", "entropy_T", "attention_T"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=2e-3), name
    for ours, theirs in zip(engine.token_log_probs(pairs), module.token_log_probs(pairs), strict=True):
        assert ours == pytest.approx(theirs, abs=2e-3)


def test_the_entropy_is_that_of_a_vocabulary_of_many_blocks() -> None:
    """The logits of 512 tokens at a time are added to the sums of a row, whose largest logit may grow."""
    model = small_model(vocab_size=3000, output_bias=True)
    assert model.output_bias_V is not None
    model.output_bias_V.data[::700] += 5.0  # large logits in several blocks
    pairs = random_pairs(3000)
    for ours, theirs in zip(
        native_engine(model, 3).token_statistics(pairs), ModuleReader(model).token_statistics(pairs), strict=True
    ):
        assert ours.entropy_T == pytest.approx(theirs.entropy_T, rel=0.02)


def test_it_depends_neither_on_the_batch_nor_on_the_threads() -> None:
    model, pairs = small_model(vocab_size=300), random_pairs(300)
    single: Any = native_engine(model, 1)
    together: Any = native_engine(model, 2)
    assert [single.attention_weights([pair])[0] for pair in pairs] == together.attention_weights(pairs)
    assert [single.token_statistics([pair])[0] for pair in pairs] == native_engine(model, 1).token_statistics(pairs)

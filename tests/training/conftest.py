"""Fixtures of checkpoints."""

from pathlib import Path

import pytest

from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a cat sat", "eine Katze sass", "a dog ran"] * 20, TokenizerConfig(vocab_size=400))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints"
    path.mkdir()
    return path

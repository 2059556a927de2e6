"""A translator with an untrained model, and texts for it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from transduce.models.encoder_decoder import EncoderDecoder
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def make_translator(untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer) -> Callable[..., Translator]:
    """A function that makes a translator with short outputs, for speed."""

    def make(**settings: Any) -> Translator:
        translator = Translator(untrained_model, toy_tokenizer, **settings)
        translator.config = replace(translator.config, max_extra=4)
        return translator

    return make


@pytest.fixture
def texts() -> list[str]:
    """Texts of different lengths, two of which are equal, with characters that the tokenizer does not know."""
    return ["ba be", "gugu dada bibo baba", "  x ", "bada gobi dudu begu bobo", "汉 😀", "ba be"]


@pytest.fixture(scope="module")
def translator(make_translator: Callable[..., Translator]) -> Translator:
    return make_translator()

"""A small translator with random weights, and its inspection of one text."""

from dataclasses import replace
from typing import Any

import pytest
from helpers import small_model
from inspections import TEXT, MakeTranslator, inspect

from transduce.inspect.inspection import Inspection
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def make_translator(toy_tokenizer: Tokenizer) -> MakeTranslator:
    """A function that makes a translator with short outputs, for speed."""

    def make(**settings: Any) -> Translator:
        model = small_model(3, toy_tokenizer.vocab_size, **settings).eval()
        translator = Translator(model, toy_tokenizer)
        translator.config = replace(translator.config, max_extra=2)
        return translator

    return make


@pytest.fixture(scope="module")
def translator(make_translator: MakeTranslator) -> Translator:
    return make_translator()


@pytest.fixture(scope="module")
def inspection(translator: Translator) -> Inspection:
    return inspect(translator, text=TEXT)

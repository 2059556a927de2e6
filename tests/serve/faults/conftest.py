"""A server that the tests of faults share.

`make faults` (FAULTS=full) runs these tests at full length; the normal test suite runs a short version.
"""

from collections.abc import Iterator

import pytest
import torch
from serving import serve_in_thread

from transduce.language_model.generator import Generator
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def address(translator: Translator) -> Iterator[str]:
    """The address of a server of translation models and a language model with low limits, in a thread."""
    limits = {"body_bytes": 100_000, "characters": 2000}
    tokenizer = Tokenizer.train_on_documents(["the cat sat on the mat.\n"] * 5, TokenizerConfig(vocab_size=400))
    torch.manual_seed(3)
    model = DecoderOnly(DecoderOnlyConfig(layers=1, d_model=16, d_ff=32, num_heads=2), tokenizer.vocab_size).eval()
    generators = {"lm": Generator(model, tokenizer, context=40)}
    models = [("en-de", translator), ("toy", translator)]
    with serve_in_thread(models, generators=generators, **limits) as (address, _):
        yield address

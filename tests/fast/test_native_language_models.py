"""Language models in the native engine: identical to `plain` with products rounded to integers."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engines import ATTEMPTS, ROUNDING_TIES, TOLERANCE, quantised_language_model
from fault_injection import repetitions
from helpers import FIRST_WORD, packed_stream, small_language_model
from random_language_models import draw_settings

from transduce.errors import ConfigError
from transduce.fast.native.language_model import NativeLanguageModel
from transduce.fast.native.library import load_library
from transduce.models.decoder_only import DecoderOnly
from transduce.search.decoder import Decoder
from transduce.search.sampling import greedy_choice, roll_out_steps, sampler
from transduce.tokenizers.tokenizer import BOS

CASES = repetitions(30, 100)
STYLES: dict[str, dict[str, Any]] = {
    "gpt2": {
        "norm": "pre", "positions": "learned", "max_positions": 64, "activation": "gelu_tanh", "embedding": "plain",
    },
    "llama": {
        "norm": "pre", "norm_type": "rms", "positions": "rotary", "activation": "swiglu", "bias": False,
        "embedding": "plain", "kv_heads": 2,
    },
}  # fmt: skip

Outputs = list[list[list[tuple[int, float]]]]
"""Tokens and log-probabilities of every output of every prompt."""


def native_decoder(model: DecoderOnly, threads: int = 2) -> NativeLanguageModel:
    library = load_library()
    if library is None:
        pytest.skip("no C compiler")
    return NativeLanguageModel(model, library, threads)


def generate(
    decoder: Decoder, prompts: list[list[int]], new: int, rows: int = 1, choose: Any = greedy_choice
) -> Outputs:
    """Outputs of up to `new` tokens, each limited differently, so that outputs leave the batch one by one."""
    outputs: Outputs = [[[] for _ in range(rows)] for _ in prompts]
    limits = [new + number % 3 for number in range(len(prompts))]
    texts = [[BOS, *prompt] for prompt in prompts]
    source, first = packed_stream([text[:-1] for text in texts]), [text[-1] for text in texts]
    for step in roll_out_steps(decoder, source, limits, choose, rows=rows, first=first):
        for row, sentence in enumerate(step.sentences):
            for column in range(rows):
                found = int(step.token_BW[row, column]), float(step.log_prob_BW[row, column])
                outputs[sentence][column].append(found)
    return outputs


def same(ours: Outputs, theirs: Outputs) -> bool:
    pairs = [(a, b) for own, other in zip(ours, theirs, strict=True) for a, b in zip(own, other, strict=True)]
    return all(
        [token for token, _ in a] == [token for token, _ in b]
        and all(abs(x - y) < TOLERANCE for (_, x), (_, y) in zip(a, b, strict=True))
        for a, b in pairs
    )


def assert_conforms(native: Decoder, model: DecoderOnly, outputs: Callable[[Decoder], Outputs]) -> Outputs:
    """As in engines.py: activations almost halfway between two integers may be rounded either way, in each output."""
    ours = outputs(native)
    torch.manual_seed(0)
    different = {(row, column) for row, own in enumerate(ours) for column in range(len(own))}
    for noise in (0.0, *ROUNDING_TIES * ATTEMPTS):
        theirs = outputs(quantised_language_model(model, noise))
        different = {
            (row, column) for row, column in different if not same([[ours[row][column]]], [[theirs[row][column]]])
        }
        if not different:
            return ours
    raise AssertionError(f"outputs {different} of {ours} are not those of the definition")


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("prompts", [1, 2, 5])
def test_greedy_outputs_of_a_style(style: str, prompts: int) -> None:
    model = small_language_model(prompts, 40, d_model=24, **STYLES[style])
    draw = random.Random(prompts)
    texts = [[draw.randrange(FIRST_WORD, 40) for _ in range(draw.randint(0, 20))] for _ in range(prompts)]
    assert_conforms(native_decoder(model), model, lambda decoder: generate(decoder, texts, 12))


@pytest.mark.parametrize("number", range(CASES))
def test_random_models(number: int) -> None:
    draw = random.Random(number)
    vocab_size, settings = draw.choice([5, 12, 40, 700]), draw_settings(draw)
    longest, new = draw.choice([3, 9]), draw.randint(1, 5)
    settings["max_positions"] = longest + new + 3  # a learned table does not grow
    model = small_language_model(number, vocab_size, **settings)
    prompts = [
        [draw.randrange(FIRST_WORD, vocab_size) for _ in range(draw.randint(0, longest))]
        for _ in range(draw.choice([1, 1, 2, 3, 6]))
    ]
    native, rows = native_decoder(model, draw.randint(1, 3)), draw.choice([1, 1, 3])
    assert_conforms(native, model, lambda decoder: generate(decoder, prompts, new, rows=rows))


@pytest.mark.parametrize("options", [(1.0, 0, 1.0), (0.7, 5, 1.0), (1.3, 0, 0.8)])
@pytest.mark.parametrize("style", STYLES)
def test_a_seed_draws_the_same_tokens(style: str, options: tuple[float, int, float]) -> None:
    model = small_language_model(4, 40, **STYLES[style])

    def sample(decoder: Decoder) -> Outputs:
        choose = sampler(*options, seed=3, device="cpu", min_p=0.01)
        return generate(decoder, [[5, 6, 7], [], [9]], 12, rows=2, choose=choose)

    first, second = assert_conforms(native_decoder(model), model, sample)[0]
    assert first != second


def test_a_prompt_is_longer_than_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_language_model(2, 40, **STYLES["llama"])
    prompts = [[5 + number % 30 for number in range(length)] for length in (50, 3)]
    at_once = generate(native_decoder(model), prompts, 4)
    monkeypatch.setattr("transduce.fast.native.language_model._PREFILL_TOKENS", 7)
    assert generate(native_decoder(model), prompts, 4) == at_once


def test_outputs_do_not_depend_on_threads_or_on_other_prompts() -> None:
    model = small_language_model(3, 700, d_model=24, **STYLES["llama"])
    prompts = [[5, 6, 7, 8], [9], [10, 11]]
    together = generate(native_decoder(model, 3), prompts, 9)
    alone = native_decoder(model, 1)
    for prompt, outputs in zip(prompts, together, strict=True):
        ((output,),) = generate(alone, [prompt], 9)
        assert same([[output[:9]]], [[outputs[0][:9]]])


def test_texts_beyond_learned_positions_are_refused() -> None:
    model = small_language_model(0, 40, positions="learned", max_positions=6)
    with pytest.raises(ConfigError, match="8 tokens exceeds the 6 learned positions"):
        native_decoder(model).start(packed_stream([[5] * 8]))

"""Prefixes that outputs must start with."""

from collections.abc import Callable
from typing import Any

import pytest
from helpers import small_model

from transduce.errors import DataError
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.translator import Translator


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4}, {"sample": True}])
def test_every_output_starts_with_its_prefix(translator: Translator, options: dict[str, Any], texts: list[str]) -> None:
    prefixes = ["gugu", "", "ba be bi", " x"]
    found = translator.hypotheses(texts[:4], prefixes=prefixes, **options)
    for prefix, best in zip(prefixes, found, strict=True):
        assert best[0].text.startswith(prefix)
    if not options.get("sample"):
        assert found[1][0].text == translator.translate(texts[1], **options)


def test_all_n_best_outputs_start_with_the_prefix(translator: Translator) -> None:
    best = translator.hypotheses(["gi du"], prefixes=["dada"], nbest=4)[0]
    assert len(best) == 4
    assert all(one.text.startswith("dada") for one in best)


def test_a_prefix_longer_than_the_output_may_be_is_still_forced(translator: Translator) -> None:
    prefix = "ba be bi bo bu " * 6
    assert translator.hypotheses(["x"], prefixes=[prefix])[0][0].text.startswith(prefix)


def test_a_prefix_longer_than_the_learned_positions_is_refused(toy_tokenizer: Tokenizer) -> None:
    translator = Translator(small_model(0, toy_tokenizer.vocab_size, positions="learned").eval(), toy_tokenizer)
    assert translator.model.longest == 63
    (whole,) = translator.segments("x", prefix="x" * 62)
    assert len(whole.prefix) == 63
    assert translator.hypotheses(["x"], prefixes=["x" * 62])[0][0].text == "x" * 62
    with pytest.raises(DataError, match="line 2 has a prefix of 64 tokens, more than the 63 this model can generate"):
        translator.hypotheses(["x", "x"], prefixes=["", "x" * 63])


def test_the_prefix_of_a_long_text_begins_its_first_piece_only(make_translator: Callable[..., Translator]) -> None:
    translator = make_translator(max_source_length=8)
    text = translator.hypotheses(["Baba bebe. Gigi gogo."], prefixes=["dodo"])[0][0].text
    assert text.startswith("dodo")
    assert text.endswith(translator.translate("Gigi gogo."))


def test_the_numbers_of_texts_and_prefixes_must_agree(translator: Translator, texts: list[str]) -> None:
    assert len(translator.hypotheses(texts, prefixes=["ba"] * len(texts))) == len(texts)
    with pytest.raises(DataError, match=r"2 texts but 1 prefixes"):
        translator.hypotheses(["ba", "be"], prefixes=["ba"])

"""N-best lists, alignments, limits of the length, and samples."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.likelihood import cross_attention
from transduce.search.plain_engine import PlainEngine
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.translator import Translator


def test_the_n_best_are_sorted_and_differ(translator: Translator, texts: list[str]) -> None:
    for best in translator.hypotheses(texts, beam=5, nbest=5):
        assert len(best) == 5
        assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)
        assert len({tuple(one.tokens) for one in best}) == 5
        assert all(one.log_prob < 0 for one in best)


def test_the_first_of_the_n_best_is_the_translation(translator: Translator, texts: list[str]) -> None:
    best = translator.hypotheses(texts, beam=4, nbest=4)
    assert [one[0].text for one in best] == translator.translate(texts, beam=4)


def test_text_is_that_of_the_tokens(translator: Translator, toy_tokenizer: Tokenizer, texts: list[str]) -> None:
    ids = {toy_tokenizer.pieces([i])[0]: i for i in range(toy_tokenizer.vocab_size)}
    for text, best in zip(texts, translator.hypotheses(texts, nbest=2), strict=True):
        for one in best:
            decoded = toy_tokenizer.decode([ids[token] for token in one.tokens])
            assert text.replace(text.strip(), decoded) == one.text


def test_alignments_point_to_source_tokens(translator: Translator, texts: list[str]) -> None:
    for text, best in zip(texts, translator.hypotheses(texts, nbest=3, align=True), strict=True):
        source = translator.source_tokens(translator.segments(text))
        for one in best:
            assert one.alignment is not None
            assert len(one.alignment) == len(one.tokens)
            assert all(0 <= place < len(source) for place in one.alignment)
    assert translator.hypotheses(["ba be"])[0][0].alignment is None


def test_alignments_do_not_depend_on_batch_neighbours(translator: Translator, texts: list[str]) -> None:
    together = translator.hypotheses(texts, align=True)
    for text, best in zip(texts, together, strict=True):
        assert translator.hypotheses([text], align=True)[0][0].alignment == best[0].alignment


def test_a_text_longer_than_the_position_table_is_aligned(make_translator: Callable[..., Translator]) -> None:
    translator = make_translator(max_source_length=1200)
    text = "ba " * (1100 // len(translator.tokenizer.encode("ba ")))
    source, output = translator.tokenizer.encode(text), [5, 6]
    assert cross_attention(copy.deepcopy(translator.model), [source], [output]).shape == (1, 3, len(source) + 1)


def test_outputs_keep_their_limit(translator: Translator, toy_tokenizer: Tokenizer, texts: list[str]) -> None:
    for text, best in zip(texts, translator.hypotheses(texts, nbest=2, max_extra=1), strict=True):
        limit = len(toy_tokenizer.encode(text)) + 1
        assert all(len(one.tokens) <= limit for one in best)


def test_learned_positions_limit_the_output_length(untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer) -> None:
    torch.manual_seed(1)
    config = replace(untrained_model.config, positions="learned", max_positions=16)
    model = EncoderDecoder(config, toy_tokenizer.vocab_size).eval()
    translator = Translator(model, toy_tokenizer, max_source_length=12)
    for best in translator.hypotheses(["ba be", "gugu dada"]):
        assert len(best[0].tokens) <= 16


def test_sampling_is_a_function_of_its_seed(translator: Translator, texts: list[str]) -> None:
    def draw(seed: int) -> list[str]:
        return translator.translate(texts[:3], sample=True, seed=seed)

    assert draw(5) == draw(5)
    assert len({tuple(draw(seed)) for seed in range(5)}) > 1


def test_sampling_returns_nbest_outputs(translator: Translator) -> None:
    best = translator.hypotheses(["ba be"], sample=True, nbest=3, beam=1)[0]
    assert len(best) == 3
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)


def test_sampling_differs_between_equal_texts(untrained_model: Any, toy_tokenizer: Tokenizer) -> None:
    each_in_its_own_batch = PlainEngine(untrained_model, 1)
    translator = Translator(untrained_model, toy_tokenizer, engine=each_in_its_own_batch)
    outputs = translator.translate(["babo dedu"] * 4, sample=True, max_extra=5)
    assert len(set(outputs)) > 1
    assert outputs == translator.translate(["babo dedu"] * 4, sample=True, max_extra=5)

"""Inspections agree with the reference attention and the forward pass; requests that are refused."""

from typing import Any

import pytest
import torch
from helpers import logits, use_attention
from inspections import NORMS, TEXT, MakeTranslator, hidden, inspect, log_probs
from torch import Tensor

from transduce.errors import ConfigError, DataError
from transduce.inspect.heads import STACKS, sharing_copy
from transduce.inspect.inspection import TEMPERATURES, TOP_TOKENS, Inspection, inspect_translation
from transduce.inspect.request import InspectionRequest, check_tokens
from transduce.inspect.serialize import serialize
from transduce.nn import attention
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.translation.translator import Translator


@NORMS
def test_attention_equals_the_reference_engine(
    make_translator: MakeTranslator, norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = make_translator(norm=norm)
    inspection = inspect(translator, text=TEXT)
    weights: list[Tensor] = []
    definition = attention.attention_weights

    def record(*args: Any) -> Tensor:
        weights.append(definition(*args))
        return weights[-1]

    monkeypatch.setattr(attention, "attention_weights", record)
    use_attention(translator.model, attention.reference)
    hidden(translator.model, inspection.source, inspection.best.tokens)
    assert len(weights) == 2 + 2 * 2  # encoder layers; then self- and cross-attention alternate
    expected = {"encoder": weights[:2], "decoder": weights[2::2], "cross": weights[3::2]}
    for stack in STACKS:
        torch.testing.assert_close(inspection.attention[stack], torch.cat(expected[stack]), rtol=0, atol=1e-5)


def test_attention_rows_sum_to_one_and_the_decoder_is_causal(inspection: Inspection) -> None:
    S, T = len(inspection.source), len(inspection.target)
    shapes = {"encoder": (2, 4, S, S), "decoder": (2, 4, T, T), "cross": (2, 4, T, S)}
    for stack in STACKS:
        weights_LHTS = inspection.attention[stack]
        assert weights_LHTS.shape == shapes[stack]
        torch.testing.assert_close(weights_LHTS.sum(-1), torch.ones(weights_LHTS.shape[:3]), rtol=0, atol=1e-5)
    assert inspection.attention["decoder"].triu(1).count_nonzero() == 0


@NORMS
def test_the_predictions_of_a_layer_are_those_of_a_model_that_ends_there(
    make_translator: MakeTranslator, norm: str
) -> None:
    translator = make_translator(norm=norm, decoder_layers=3)
    inspection = inspect(translator, text=TEXT)
    assert len(inspection.layers) == 3
    for depth, predictions in enumerate(inspection.layers, 1):
        cut = sharing_copy(translator.model)
        cut.decoder = cut.decoder[:depth]
        expected_TV = log_probs(cut, inspection.source, inspection.best.tokens)
        best_TC, token_TC = expected_TV.topk(TOP_TOKENS)
        assert torch.equal(predictions.token_TC, token_TC)
        torch.testing.assert_close(predictions.log_prob_TC, best_TC, rtol=0, atol=1e-5)
        written_T = expected_TV[range(len(inspection.target)), inspection.target]
        torch.testing.assert_close(predictions.written_T, written_T, rtol=0, atol=1e-5)
    assert inspection.layers[-1].written_T.sum().item() == pytest.approx(inspection.best.log_prob, abs=1e-3)


@torch.inference_mode()
def test_log_sums_normalise_probabilities_at_a_temperature(translator: Translator, inspection: Inspection) -> None:
    logits_TV = logits(translator.model, hidden(translator.model, inspection.source, inspection.best.tokens))
    for x, temperature in enumerate(TEMPERATURES):
        expected_TC = (logits_TV / temperature).softmax(-1).gather(1, inspection.layers[-1].token_TC)
        shown_TC = (inspection.layers[-1].log_prob_TC / temperature - inspection.log_sum_TX[:, x, None]).exp()
        torch.testing.assert_close(shown_TC, expected_TC, rtol=1e-4, atol=1e-5)


def test_positional_encodings_are_those_of_the_model(translator: Translator, inspection: Inspection) -> None:
    assert torch.equal(inspection.positions_TD, translator.model.embedding.positions.table_TD[:64])


def test_learned_positions_limit_the_positions_shown(make_translator: MakeTranslator) -> None:
    inspection = inspect(make_translator(positions="learned", max_positions=30), text="ba de")
    assert inspection.positions_TD.shape == (30, 16)


def test_protected_spans_are_inspected_as_they_are_translated() -> None:
    translator, text = Translator.load(engine="plain"), "Write to tom@example.org."  # the bundled model has slots
    inspection = inspect_translation(translator, InspectionRequest(text=text, to="de"))
    (part,) = translator.segments(text, to="de")
    assert inspection.source == [*part.tokens, EOS]
    assert "tom@example.org" in str(serialize(inspection, translator))


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        ({"text": " \n"}, DataError, "the text is empty"),
        ({"text": "\ud800"}, DataError, "surrogate"),
        ({"text": "ba " * 300}, DataError, "the model takes 256"),
        ({"text": "ba " * 5000}, DataError, "15,000 characters"),
        ({"text": "ba", "beam": 0}, ConfigError, "beam must be between 1 and 1024"),
        ({"text": "ba", "beam": 17}, ConfigError, "beam must be at most 16"),
        ({"text": "ba", "length_penalty": 11.0}, ConfigError, "between -10 and 10"),
        ({"text": "ba", "prefix": [100_000]}, ConfigError, "100000 is not a token id"),
        ({"text": "ba", "prefix": [-1]}, ConfigError, "-1 is not a token id"),
        ({"text": "ba", "prefix": [EOS, 7]}, ConfigError, "a special token"),
        ({"text": "ba", "prefix": [BOS]}, ConfigError, "a special token"),
        ({"text": "ba", "prefix": [7] * 600}, ConfigError, "600 tokens"),
        ({"text": "ba", "off": ["cross.1"]}, ConfigError, "STACK.LAYER.HEAD"),
        ({"text": "ba", "off": ["sideways.1.1"]}, ConfigError, "encoder, decoder, cross"),
        ({"text": "ba", "off": ["cross.1.x"]}, ConfigError, "STACK.LAYER.HEAD"),
        ({"text": "ba", "off": ["cross.3.1"]}, ConfigError, "layers 1 to 2"),
        ({"text": "ba", "off": ["cross.0.1"]}, ConfigError, "layers 1 to 2"),
        ({"text": "ba", "off": ["cross.1.5"]}, ConfigError, "heads 1 to 4"),
        ({"text": "ba", "off": ["cross.1." + "9" * 5000]}, ConfigError, "heads 1 to 4"),
    ],
)
def test_invalid_requests_are_rejected_with_a_reason(
    translator: Translator, request_: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        inspect(translator, **request_)


def test_a_prefix_is_limited_by_learned_positions_even_by_a_single_one(make_translator: MakeTranslator) -> None:
    with pytest.raises(ConfigError, match="the prefix has 1 tokens; an output may have 0"):
        check_tokens([7], make_translator(positions="learned", max_positions=1).model)

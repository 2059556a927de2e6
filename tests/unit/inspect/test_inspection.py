"""Inspections agree with the reference attention, the forward pass and the search."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import logits, small_model, use_engine
from torch import Tensor

from transduce.data.batch import Batch
from transduce.errors import ConfigError, DataError
from transduce.inspect.heads import STACKS, Head, parse_heads
from transduce.inspect.inspection import Inspection, InspectionRequest, check_tokens, inspect_translation
from transduce.inspect.predictions import TEMPERATURES, TOP_TOKENS
from transduce.inspect.serialize import serialize
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn import attention
from transduce.nn.ablate import sharing_copy
from transduce.nn.observe import observe_attention
from transduce.text.tokenizer import BOS, EOS, Tokenizer
from transduce.translator import Translator

TEXT = "bada gobi dudu begu"
NORMS = pytest.mark.parametrize("norm", ["post", "pre"])
Make = Callable[..., Translator]


@pytest.fixture(scope="module")
def make(toy_tokenizer: Tokenizer) -> Make:
    def make(**settings: Any) -> Translator:
        model = small_model(3, toy_tokenizer.vocab_size, **settings).eval()
        translator = Translator(model, toy_tokenizer)
        translator.config = replace(translator.config, max_extra=2)
        return translator

    return make


@pytest.fixture(scope="module")
def translator(make: Make) -> Translator:
    return make()


def inspect(translator: Translator, **request: Any) -> Inspection:
    return inspect_translation(translator, InspectionRequest(**request))


@pytest.fixture(scope="module")
def inspection(translator: Translator) -> Inspection:
    return inspect(translator, text=TEXT)


@torch.inference_mode()
def hidden(model: EncoderDecoder, source: list[int], target: list[int]) -> Tensor:
    """The last hidden vectors (T, D) of a forward pass."""
    return model(Batch.of(src=[source], tgt=[[BOS, *target]]))


@torch.inference_mode()
def log_probs(model: EncoderDecoder, source: list[int], target: list[int]) -> Tensor:
    """Log-probabilities (T, V) of every token at each step, from a forward pass."""
    return logits(model, hidden(model, source, target)).log_softmax(-1)


def total_log_prob(model: EncoderDecoder, source: list[int], target: list[int], end: bool) -> float:
    written = [*target, EOS] if end else target
    log_prob_TV = log_probs(model, source, target)
    return sum(log_prob_TV[t, token].item() for t, token in enumerate(written))


def path(inspection: Inspection, index: int) -> list[int]:
    """The tokens from the root to a node of the tree."""
    node = inspection.tree[index]
    return [*path(inspection, node.parent), node.token] if index else []


# Attention


@NORMS
def test_attention_equals_the_reference_engine(make: Make, norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = make(norm=norm)
    inspection = inspect(translator, text=TEXT)
    weights: list[Tensor] = []
    definition = attention.attention_weights

    def record(*args: Any) -> Tensor:
        weights.append(definition(*args))
        return weights[-1]

    monkeypatch.setattr(attention, "attention_weights", record)
    use_engine(translator.model, "reference")
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


# Search


@pytest.mark.parametrize("options", [{}, {"beam": 2}, {"beam": 6, "length_penalty": 1.5}, {"length_penalty": -0.5}])
def test_the_finished_nodes_are_the_hypotheses_of_the_search(translator: Translator, options: dict[str, Any]) -> None:
    inspection = inspect(translator, text=TEXT, **options)
    beam = options.get("beam", 4)
    (expected,) = translator.hypotheses([TEXT], nbest=beam, **options)
    finished = []
    for index, node in enumerate(inspection.tree):
        if node.outcome == "finished":
            tokens = path(inspection, index)
            score = node.log_prob / ((5 + len(tokens)) / 6) ** inspection.config.length_penalty
            finished.append((score, node.log_prob, translator.tokenizer.pieces(tokens[:-1])))
    finished.sort(reverse=True)
    assert len(expected) == beam
    for (score, log_prob, pieces), one in zip(finished, expected, strict=False):
        assert pieces == one.tokens
        assert score == pytest.approx(one.score, abs=1e-5)
        assert log_prob == pytest.approx(one.log_prob, abs=1e-5)
    assert inspection.best.score == pytest.approx(expected[0].score, abs=1e-5)
    assert inspection.best.log_prob == pytest.approx(expected[0].log_prob, abs=1e-5)
    assert translator.tokenizer.decode(inspection.best.tokens) == translator.translate(TEXT, **options)


def test_every_node_has_the_log_probability_of_its_tokens(translator: Translator, inspection: Inspection) -> None:
    for index in range(1, len(inspection.tree)):
        tokens = path(inspection, index)
        end = tokens[-1] == EOS
        expected = total_log_prob(translator.model, inspection.source, tokens[:-1] if end else tokens, end)
        assert inspection.tree[index].log_prob == pytest.approx(expected, abs=1e-3)


def test_only_the_best_hypotheses_of_a_step_are_kept_and_extended(inspection: Inspection) -> None:
    depth = [len(path(inspection, index)) for index in range(len(inspection.tree))]
    assert all(inspection.tree[node.parent].outcome == "kept" for node in inspection.tree)
    for step in range(1, max(depth) + 1):
        here = [node for node, d in zip(inspection.tree, depth, strict=True) if d == step]
        kept = [node.log_prob for node in here if node.outcome == "kept"]
        pruned = [node.log_prob for node in here if node.outcome == "pruned"]
        assert len(kept) <= 4
        assert len(here) <= 8
        assert min(kept, default=0) >= max(pruned, default=-math.inf)
    assert {node.outcome for node in inspection.tree} == {"kept", "pruned", "finished"}


def test_every_hypothesis_begins_with_a_forced_prefix(translator: Translator, inspection: Inspection) -> None:
    other = next(
        n for n, node in enumerate(inspection.tree) if node.outcome == "pruned" and len(path(inspection, n)) == 2
    )
    prefix = path(inspection, other)
    forced = inspect(translator, text=TEXT, prefix=prefix)
    assert forced.best.tokens[:2] == prefix
    assert [node.token for node in forced.tree[1:3]] == prefix
    assert forced.best.tokens != inspection.best.tokens
    assert forced.best.log_prob == pytest.approx(
        total_log_prob(translator.model, forced.source, forced.best.tokens, True), abs=1e-3
    )


def test_a_prefix_with_an_end_marker_is_the_complete_output(translator: Translator, inspection: Inspection) -> None:
    prefix = [*inspection.best.tokens[:2], EOS]
    forced = inspect(translator, text=TEXT, prefix=prefix)
    assert forced.target == prefix
    assert [node.token for node in forced.tree[1:]] == prefix


def test_the_search_respects_max_length_and_no_repeat(make: Make) -> None:
    translator = make()
    translator.config = replace(translator.config, max_length=4, no_repeat=1)
    inspection = inspect(translator, text=TEXT)
    assert translator.tokenizer.decode(inspection.best.tokens) == translator.translate(TEXT)
    assert len(inspection.target) <= 5
    assert len(set(inspection.target)) == len(inspection.target)
    assert inspect(translator, text=TEXT, prefix=[300, 300]).target[:2] == [300, 300]  # a prefix may repeat


# Predictions


@NORMS
def test_the_predictions_of_a_layer_are_those_of_a_model_that_ends_there(make: Make, norm: str) -> None:
    translator = make(norm=norm, decoder_layers=3)
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


# Heads switched off


@NORMS
@pytest.mark.parametrize("name", ["encoder.1.2", "decoder.2.4", "cross.1.1"])
def test_a_head_that_is_off_has_no_effect(make: Make, norm: str, name: str) -> None:
    translator = make(norm=norm, d_k=3, d_v=5)
    inspection = inspect(translator, text=TEXT, off=[name])
    (head,) = parse_heads([name], translator.model.config)
    ablated = sharing_copy(translator.model)

    def zero_head(_: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
        keep = torch.ones(4, 5)
        keep[head.head] = 0
        return (inputs[0] * keep.flatten(),)

    ablated.get_submodule(f"{head.module}.out").register_forward_pre_hook(zero_head)
    assert inspection.best.log_prob == pytest.approx(
        total_log_prob(ablated, inspection.source, inspection.best.tokens, True), abs=1e-3
    )
    torch.testing.assert_close(
        inspection.layers[-1].log_prob_TC,
        log_probs(ablated, inspection.source, inspection.best.tokens).topk(TOP_TOKENS).values,
        rtol=0,
        atol=1e-4,
    )
    assert inspection.ablation
    full = inspect(translator, text=TEXT).best
    assert inspection.ablation.full == full
    assert inspection.ablation.rescored.tokens == full.tokens
    expected = total_log_prob(ablated, inspection.source, full.tokens, True)
    assert inspection.ablation.rescored.log_prob == pytest.approx(expected, abs=1e-3)
    assert inspection.ablation.rescored.log_prob != pytest.approx(full.log_prob, abs=1e-3)


def test_an_inspection_does_not_change_the_model(translator: Translator) -> None:
    before = {name: x.clone() for name, x in translator.model.state_dict().items()}
    inspect(translator, text=TEXT, off=["cross.1.1", "cross.1.2", "encoder.2.4"])
    assert all(torch.equal(x, before[name]) for name, x in translator.model.state_dict().items())
    assert not any(module._forward_hooks for module in translator.model.modules())


def test_concurrent_inspections_and_translations_are_independent(translator: Translator) -> None:
    requests = [InspectionRequest(text=TEXT, off=off) for off in ([], ["cross.1.1"], ["encoder.2.4", "decoder.1.2"])]

    def work(request: InspectionRequest) -> tuple[Any, ...]:
        inspection = inspect_translation(translator, request)
        cross = inspection.attention["cross"].tolist()
        return inspection.best, cross, len(inspection.layers), translator.translate(TEXT)

    expected = [work(request) for request in requests]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            assert list(pool.map(work, requests)) == expected


def test_a_copy_shares_weights_but_no_hooks(translator: Translator) -> None:
    copy = sharing_copy(translator.model)
    for mine, own in zip(copy.parameters(), translator.model.parameters(), strict=True):
        assert mine is own
    calls: list[str] = []
    copy.decoder[0].register_forward_hook(lambda *_: calls.append("called"))
    hidden(translator.model, [5, EOS], [6])
    assert not calls
    hidden(copy, [5, EOS], [6])
    assert calls


def test_a_copy_made_while_the_model_is_observed_is_not_observed(translator: Translator) -> None:
    with observe_attention(translator.model) as observed:
        copy = sharing_copy(translator.model)
        hidden(copy, [5, EOS], [6])
        assert not observed
        hidden(translator.model, [5, EOS], [6])
        assert observed
    assert not any(module._forward_hooks for module in copy.modules())


# Errors


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


def test_duplicate_heads_are_removed(translator: Translator) -> None:
    heads = parse_heads(["cross.1.2", "cross.1.2", "encoder.2.1"], translator.model.config)
    assert heads == [Head("cross", 0, 1), Head("encoder", 1, 0)]


def test_a_prefix_is_limited_by_learned_positions_even_by_a_single_one(make: Make) -> None:
    with pytest.raises(ConfigError, match="the prefix has 1 tokens; an output may have 0"):
        check_tokens([7], make(positions="learned", max_positions=1).model)


def test_learned_positions_limit_the_positions_shown(make: Make) -> None:
    inspection = inspect(make(positions="learned", max_positions=30), text="ba de")
    assert inspection.positions_TD.shape == (30, 16)


def test_protected_spans_are_inspected_as_they_are_translated() -> None:
    translator, text = Translator.load(engine="plain"), "Write to tom@example.org."  # the bundled model has slots
    inspection = inspect_translation(translator, InspectionRequest(text=text, to="de"))
    (part,) = translator.parts(text, to="de")
    assert inspection.source == [*part.tokens, EOS]
    assert "tom@example.org" in str(serialize(inspection, translator))

"""What a look shows is what the model does: held against the reference engine, the forward pass and search itself."""

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
from transduce.inspect.guesses import LIKELIEST, TEMPERATURES
from transduce.inspect.heads import STACKS, Head, parse_heads
from transduce.inspect.look import Look, LookRequest, look
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


@pytest.fixture(scope="module")
def found(translator: Translator) -> Look:
    return look(translator, LookRequest(text=TEXT))


@torch.inference_mode()
def hidden(model: EncoderDecoder, source: list[int], said: list[int]) -> Tensor:
    """The last hidden vectors (T, D) of a forward pass."""
    return model(Batch.of(src=[source], tgt=[[BOS, *said]]))


@torch.inference_mode()
def log_probs(model: EncoderDecoder, source: list[int], said: list[int]) -> Tensor:
    """Of every token (T, V) at each step, from a forward pass."""
    return logits(model, hidden(model, source, said)).log_softmax(-1)


def total(model: EncoderDecoder, source: list[int], said: list[int], end: bool) -> float:
    written = [*said, EOS] if end else said
    log_prob_TV = log_probs(model, source, said)
    return sum(log_prob_TV[t, token].item() for t, token in enumerate(written))


def path(found: Look, number: int) -> list[int]:
    """The tokens that a node of the tree has said."""
    node = found.tree[number]
    return [*path(found, node.parent), node.token] if number else []


# Attention


@NORMS
def test_attention_is_that_of_the_reference_engine(make: Make, norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = make(norm=norm)
    found = look(translator, LookRequest(text=TEXT))
    seen: list[Tensor] = []
    definition = attention.attention_weights

    def record(*args: Any) -> Tensor:
        seen.append(definition(*args))
        return seen[-1]

    monkeypatch.setattr(attention, "attention_weights", record)
    use_engine(translator.model, "reference")
    hidden(translator.model, found.source, found.best.tokens)
    assert len(seen) == 2 + 2 * 2  # encoder layers; then self and cross in turn
    expected = {"encoder": seen[:2], "decoder": seen[2::2], "cross": seen[3::2]}
    for stack in STACKS:
        torch.testing.assert_close(found.attention[stack], torch.cat(expected[stack]), rtol=0, atol=1e-5)


def test_every_row_of_attention_sums_to_one_and_the_decoder_does_not_look_ahead(found: Look) -> None:
    S, T = len(found.source), len(found.target)
    shapes = {"encoder": (2, 4, S, S), "decoder": (2, 4, T, T), "cross": (2, 4, T, S)}
    for stack in STACKS:
        weights_LHTS = found.attention[stack]
        assert weights_LHTS.shape == shapes[stack]
        torch.testing.assert_close(weights_LHTS.sum(-1), torch.ones(weights_LHTS.shape[:3]), rtol=0, atol=1e-5)
    assert found.attention["decoder"].triu(1).count_nonzero() == 0


# Search


@pytest.mark.parametrize("options", [{}, {"beam": 2}, {"beam": 6, "length_penalty": 1.5}, {"length_penalty": -0.5}])
def test_the_tree_ends_in_what_search_finds(translator: Translator, options: dict[str, Any]) -> None:
    found = look(translator, LookRequest(text=TEXT, **options))
    beam = options.get("beam", 4)
    (expected,) = translator.hypotheses([TEXT], nbest=beam, **options)
    finished = []
    for number, node in enumerate(found.tree):
        if node.fate == "finished":
            said = path(found, number)
            score = node.log_prob / ((5 + len(said)) / 6) ** found.config.length_penalty
            finished.append((score, node.log_prob, translator.tokenizer.pieces(said[:-1])))
    finished.sort(reverse=True)
    assert len(expected) == beam
    for (score, log_prob, tokens), one in zip(finished, expected, strict=False):
        assert tokens == one.tokens
        assert score == pytest.approx(one.score, abs=1e-5)
        assert log_prob == pytest.approx(one.log_prob, abs=1e-5)
    assert (found.best.score, found.best.log_prob) == pytest.approx((expected[0].score, expected[0].log_prob), abs=1e-5)
    assert translator.tokenizer.decode(found.best.tokens) == translator.translate(TEXT, **options)


def test_every_node_carries_the_models_probability_of_what_it_said(translator: Translator, found: Look) -> None:
    for number in range(1, len(found.tree)):
        said = path(found, number)
        end = said[-1] == EOS
        expected = total(translator.model, found.source, said[:-1] if end else said, end)
        assert found.tree[number].log_prob == pytest.approx(expected, abs=1e-3)


def test_what_was_kept_is_the_best_of_its_step_and_alone_goes_on(found: Look) -> None:
    depth = [len(path(found, number)) for number in range(len(found.tree))]
    assert all(found.tree[node.parent].fate == "kept" for node in found.tree)
    for step in range(1, max(depth) + 1):
        here = [node for node, d in zip(found.tree, depth, strict=True) if d == step]
        kept = [node.log_prob for node in here if node.fate == "kept"]
        pruned = [node.log_prob for node in here if node.fate == "pruned"]
        assert len(kept) <= 4
        assert len(here) <= 8
        assert min(kept, default=0) >= max(pruned, default=-math.inf)
    assert {node.fate for node in found.tree} == {"kept", "pruned", "finished"}


def test_a_forced_prefix_is_how_every_hypothesis_begins(translator: Translator, found: Look) -> None:
    other = next(n for n, node in enumerate(found.tree) if node.fate == "pruned" and len(path(found, n)) == 2)
    prefix = path(found, other)
    forced = look(translator, LookRequest(text=TEXT, prefix=prefix))
    assert forced.best.tokens[:2] == prefix
    assert [node.token for node in forced.tree[1:3]] == prefix
    assert forced.best.tokens != found.best.tokens
    assert forced.best.log_prob == pytest.approx(
        total(translator.model, forced.source, forced.best.tokens, True), abs=1e-3
    )


def test_a_prefix_with_an_end_marker_is_the_whole_output(translator: Translator, found: Look) -> None:
    prefix = [*found.best.tokens[:2], EOS]
    forced = look(translator, LookRequest(text=TEXT, prefix=prefix))
    assert forced.target == prefix
    assert [node.token for node in forced.tree[1:]] == prefix


def test_search_is_bounded_as_everywhere_else(make: Make) -> None:
    translator = make()
    translator.config = replace(translator.config, max_length=4, no_repeat=1)
    found = look(translator, LookRequest(text=TEXT))
    assert translator.tokenizer.decode(found.best.tokens) == translator.translate(TEXT)
    assert len(found.target) <= 5
    assert len(set(found.target)) == len(found.target)
    assert look(translator, LookRequest(text=TEXT, prefix=[300, 300])).target[:2] == [300, 300]  # as asked for


# Guesses


@NORMS
def test_each_layer_says_what_a_model_cut_off_behind_it_says(make: Make, norm: str) -> None:
    translator = make(norm=norm, decoder_layers=3)
    found = look(translator, LookRequest(text=TEXT))
    assert len(found.layers) == 3
    for depth, guesses in enumerate(found.layers, 1):
        cut = sharing_copy(translator.model)
        cut.decoder = cut.decoder[:depth]
        expected_TV = log_probs(cut, found.source, found.best.tokens)
        best_TC, token_TC = expected_TV.topk(LIKELIEST)
        assert torch.equal(guesses.token_TC, token_TC)
        torch.testing.assert_close(guesses.log_prob_TC, best_TC, rtol=0, atol=1e-5)
        written_T = expected_TV[range(len(found.target)), found.target]
        torch.testing.assert_close(guesses.written_T, written_T, rtol=0, atol=1e-5)
    assert found.layers[-1].written_T.sum().item() == pytest.approx(found.best.log_prob, abs=1e-3)


@torch.inference_mode()
def test_the_sums_turn_probabilities_into_those_under_a_temperature(translator: Translator, found: Look) -> None:
    logits_TV = logits(translator.model, hidden(translator.model, found.source, found.best.tokens))
    for x, temperature in enumerate(TEMPERATURES):
        expected_TC = (logits_TV / temperature).softmax(-1).gather(1, found.layers[-1].token_TC)
        shown_TC = (found.layers[-1].log_prob_TC / temperature - found.log_sum_TX[:, x, None]).exp()
        torch.testing.assert_close(shown_TC, expected_TC, rtol=1e-4, atol=1e-5)


def test_places_are_the_models_own(translator: Translator, found: Look) -> None:
    assert torch.equal(found.positions_TD, translator.model.embedding.positions.table_TD[:64])


# Heads switched off


@NORMS
@pytest.mark.parametrize("name", ["encoder.1.2", "decoder.2.4", "cross.1.1"])
def test_a_head_that_is_off_adds_nothing(make: Make, norm: str, name: str) -> None:
    translator = make(norm=norm, d_k=3, d_v=5)
    found = look(translator, LookRequest(text=TEXT, off=[name]))
    (head,) = parse_heads([name], translator.model.config)
    silenced = sharing_copy(translator.model)

    def silence(_: Any, __: Any, o_NW: Tensor) -> Tensor:
        keep = torch.ones(4, 5)
        keep[head.head] = 0
        return o_NW * keep.flatten()

    silenced.get_submodule(head.module).register_forward_hook(silence)
    assert found.best.log_prob == pytest.approx(total(silenced, found.source, found.best.tokens, True), abs=1e-3)
    torch.testing.assert_close(
        found.layers[-1].log_prob_TC,
        log_probs(silenced, found.source, found.best.tokens).topk(LIKELIEST).values,
        rtol=0,
        atol=1e-4,
    )
    assert found.unchanged
    whole = look(translator, LookRequest(text=TEXT)).best
    assert found.unchanged.whole == whole
    assert found.unchanged.silenced.tokens == whole.tokens
    expected = total(silenced, found.source, whole.tokens, True)
    assert found.unchanged.silenced.log_prob == pytest.approx(expected, abs=1e-3)
    assert found.unchanged.silenced.log_prob != pytest.approx(whole.log_prob, abs=1e-3)


def test_looking_leaves_no_trace_in_the_model(translator: Translator) -> None:
    before = {name: x.clone() for name, x in translator.model.state_dict().items()}
    look(translator, LookRequest(text=TEXT, off=["cross.1.1", "cross.1.2", "encoder.2.4"]))
    assert all(torch.equal(x, before[name]) for name, x in translator.model.state_dict().items())
    assert not any(module._forward_hooks for module in translator.model.modules())


def test_looks_and_translations_at_the_same_time_do_not_meet(translator: Translator) -> None:
    requests = [LookRequest(text=TEXT, off=off) for off in ([], ["cross.1.1"], ["encoder.2.4", "decoder.1.2"])]

    def work(request: LookRequest) -> tuple[Any, ...]:
        found = look(translator, request)
        return found.best, found.attention["cross"].tolist(), len(found.layers), translator.translate(TEXT)

    alone = [work(request) for request in requests]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            assert list(pool.map(work, requests)) == alone


def test_a_copy_shares_weights_but_no_hooks(translator: Translator) -> None:
    copy = sharing_copy(translator.model)
    for mine, own in zip(copy.parameters(), translator.model.parameters(), strict=True):
        assert mine is own
    seen: list[str] = []
    copy.decoder[0].register_forward_hook(lambda *_: seen.append("seen"))
    hidden(translator.model, [5, EOS], [6])
    assert not seen
    hidden(copy, [5, EOS], [6])
    assert seen


def test_a_copy_made_while_the_model_is_watched_is_not_watched(translator: Translator) -> None:
    with observe_attention(translator.model) as seen:
        copy = sharing_copy(translator.model)
        hidden(copy, [5, EOS], [6])
        assert not seen
        hidden(translator.model, [5, EOS], [6])
        assert seen
    assert not any(module._forward_hooks for module in copy.modules())


# What is refused


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        ({"text": " \n"}, DataError, "no text"),
        ({"text": "\ud800"}, DataError, "surrogate"),
        ({"text": "ba " * 300}, DataError, "at most 128"),
        ({"text": "ba " * 5000}, DataError, "15,000 characters"),
        ({"text": "ba", "beam": 0}, ConfigError, "beam must be at least 1"),
        ({"text": "ba", "beam": 17}, ConfigError, "beam must be at most 16"),
        ({"text": "ba", "length_penalty": 11.0}, ConfigError, "between -10 and 10"),
        ({"text": "ba", "prefix": [100_000]}, ConfigError, "100000 is no token"),
        ({"text": "ba", "prefix": [-1]}, ConfigError, "-1 is no token"),
        ({"text": "ba", "prefix": [EOS, 7]}, ConfigError, "a marker"),
        ({"text": "ba", "prefix": [BOS]}, ConfigError, "a marker"),
        ({"text": "ba", "prefix": [7] * 300}, ConfigError, "300 tokens"),
        ({"text": "ba", "off": ["cross.1"]}, ConfigError, "stack.layer.head"),
        ({"text": "ba", "off": ["sideways.1.1"]}, ConfigError, "encoder, decoder, cross"),
        ({"text": "ba", "off": ["cross.1.x"]}, ConfigError, "stack.layer.head"),
        ({"text": "ba", "off": ["cross.3.1"]}, ConfigError, "layers 1 to 2"),
        ({"text": "ba", "off": ["cross.0.1"]}, ConfigError, "layers 1 to 2"),
        ({"text": "ba", "off": ["cross.1.5"]}, ConfigError, "heads 1 to 4"),
        ({"text": "ba", "off": ["cross.1." + "9" * 5000]}, ConfigError, "heads 1 to 4"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_with_a_reason(
    translator: Translator, request_: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        look(translator, LookRequest(**request_))


def test_a_head_named_twice_counts_once(translator: Translator) -> None:
    heads = parse_heads(["cross.1.2", "cross.1.2", "encoder.2.1"], translator.model.config)
    assert heads == [Head("cross", 0, 1), Head("encoder", 1, 0)]


def test_learnt_positions_bound_what_is_shown(make: Make) -> None:
    found = look(make(positions="learned", max_positions=30), LookRequest(text="ba de"))
    assert found.positions_TD.shape == (30, 16)

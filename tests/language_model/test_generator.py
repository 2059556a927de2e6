"""The generator: continuations token by token, their text, and scores of texts."""

from itertools import islice
from typing import Any

import pytest
import torch
from helpers import small_language_model
from window_language_model import WindowConfig, WindowModel

from transduce.data.batch import Batch
from transduce.errors import ConfigError, DataError, ModelError
from transduce.fast.native.language_model import NativeLanguageModel
from transduce.fast.native.library import load_library
from transduce.language_model.generator import Generator, TextStream
from transduce.search.sampling import sampler
from transduce.tokenizers.tokenizer import BOS, Tokenizer, TokenizerConfig

LINES = ["the cat sat on the mat.\n", "naïve 東京 text\n", "dogs and cats\n"] * 5
CONTEXT = 12


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train_on_documents(LINES, TokenizerConfig(vocab_size=430))


@pytest.fixture(scope="module")
def generator(tokenizer: Tokenizer) -> Generator:
    torch.manual_seed(3)
    model = WindowModel(WindowConfig(window=4), tokenizer.vocab_size).eval()
    return Generator(model, tokenizer, context=CONTEXT)


def defined_log_probs(generator: Generator, ids: list[int]) -> list[float]:
    """The log-probabilities of all next tokens after these ids."""
    with torch.inference_mode():
        hidden_TD = generator.model(Batch.of(text=[ids]))
        return (hidden_TD[-1] @ generator.model.output_weight_VD.T).log_softmax(-1).tolist()


def test_greedy_continuations_follow_the_model(generator: Generator, tokenizer: Tokenizer) -> None:
    prompts = ["the cat", "", "dogs and cats and more dogs and cats and"]
    found = generator.generations(prompts, max_tokens=30, temperature=0)
    for prompt, (one,) in zip(prompts, found, strict=True):
        ids = [BOS, *tokenizer.encode(prompt)]
        tokens = []
        for log_prob in one.token_log_probs:
            # The window of the model is shorter than half a context, so a full context changes nothing.
            scores = defined_log_probs(generator, ids)
            best = max(range(3, tokenizer.vocab_size), key=lambda token: scores[token])
            assert log_prob == pytest.approx(scores[best], abs=1e-4)
            ids.append(best)
            tokens.append(best)
        assert one.tokens == tokenizer.pieces(tokens)
        assert one.text == tokenizer.decode(tokens)
        assert len(tokens) == 30 or one.finish_reason == "stop"


def test_outputs_do_not_depend_on_other_prompts_or_on_streaming(generator: Generator) -> None:
    prompts = [line[:n] for n, line in enumerate(LINES * 3)]
    together = generator.generate(prompts, max_tokens=9, temperature=0)
    assert together == [generator.generate(prompt, max_tokens=9, temperature=0) for prompt in prompts]
    assert together == ["".join(generator.stream(prompt, max_tokens=9, temperature=0)) for prompt in prompts]


def test_sampling_is_determined_by_the_seed(generator: Generator) -> None:
    first, again, other = (generator.generations(["the"], num=3, max_tokens=20, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len({one.text for one in first[0]}) == 3


def test_the_state_is_given_to_the_model_as_the_contract_says(
    generator: Generator, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    start = generator.model.start

    def record(source):  # type: ignore[no-untyped-def]
        started.append((source.ids_N.tolist(), source.segments.lengths_B.tolist(), source.ids_N.dtype))
        return start(source)

    monkeypatch.setattr(generator.model, "start", record)
    generator.generate(["", "the cat"], max_tokens=2)
    assert started == [([BOS, *tokenizer.encode("the cat")[:-1]], [0, len(tokenizer.encode("the cat"))], torch.int64)]


def test_the_context_is_never_exceeded(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0
    step = generator.model.step

    def record(token_R, state):  # type: ignore[no-untyped-def]
        nonlocal longest
        longest = max(longest, 1 + max(map(len, state)))
        return step(token_R, state)

    monkeypatch.setattr(generator.model, "step", record)
    (one,), (two,) = generator.generations(["the cat sat on the mat." * 5, "a"], max_tokens=50, no_repeat=0, seed=3)
    assert longest == CONTEXT
    assert all(len(each.tokens) == 50 or each.finish_reason == "stop" for each in (one, two))


@pytest.mark.parametrize("stop", ["at", ["mat", " 東"], "xyz", ["t", "at"]])
def test_text_ends_before_a_stop_string(generator: Generator, tokenizer: Tokenizer, stop: str | list[str]) -> None:
    text = "the cat sat\non the mat. naïve 東京"
    stops = [stop] if isinstance(stop, str) else stop
    stream = TextStream(tokenizer, stops)
    parts = [stream.add(token) for token in tokenizer.encode(text)] + [stream.finish()]
    ends = [text.find(one) for one in stops if one in text]
    assert "".join(parts) == stream.text == (text[: min(ends)] if ends else text)
    assert stream.stopped == bool(ends)
    free = generator.generations(["the"], max_tokens=40, seed=5)[0][0]
    inner = free.text[6:9]
    (stopped,) = generator.generations(["the"], max_tokens=40, seed=5, stop=[inner])[0]
    assert stopped.text == free.text[: free.text.index(inner)]
    assert stopped.finish_reason == "stop"


def test_characters_of_several_tokens_are_never_cut(tokenizer: Tokenizer) -> None:
    text = "日本語 é\ue105▁\ufffd 🎉"
    ids = tokenizer.encode(text)
    stream = TextStream(tokenizer)
    parts = [stream.add(token) for token in ids]
    assert "".join(parts) + stream.finish() == text
    assert len(ids) > len([part for part in parts if part])
    assert all(part in text for part in parts)


def test_min_p_leaves_out_unlikely_tokens() -> None:
    log_prob_RV = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log().expand(2000, -1)
    drawn = sampler(1.0, 0, 1.0, 1, "cpu", min_p=0.4)(log_prob_RV).bincount(minlength=4) / 2000
    assert drawn.tolist() == pytest.approx([0.5 / 0.8, 0.3 / 0.8, 0, 0], abs=0.04)
    assert sampler(0, 0, 1.0, 1, "cpu")(log_prob_RV).tolist() == [0] * 2000


def test_a_nucleus_may_have_many_tokens() -> None:
    probability_V = torch.arange(3000, 0, -1).double()
    probability_V /= probability_V.sum()
    inside = int((probability_V.cumsum(0) - probability_V < 0.9).sum())
    log_prob_RV = probability_V.log().float().flip(0).expand(5_000, -1)
    drawn = 2999 - sampler(1.0, 0, 0.9, 1, "cpu")(log_prob_RV)
    assert 1500 < inside - 30 < int(drawn.max()) <= inside
    assert float((drawn < 1000).float().mean()) == pytest.approx(float(probability_V[:1000].sum()) / 0.9, abs=0.015)


def test_scores_are_log_probabilities_given_the_tokens_before(generator: Generator, tokenizer: Tokenizer) -> None:
    text = "the cat sat on the mat.\nnaïve"
    ids = [BOS, *tokenizer.encode(text)]
    (score, empty) = generator.score([text, ""], stride=4)
    expected = [defined_log_probs(generator, ids[:n])[ids[n]] for n in range(1, len(ids))]
    # With a stride of 4, at least 8 tokens are before each, and the model reads 4.
    assert score.token_log_probs == pytest.approx(expected, abs=1e-4)
    assert score.log_prob == pytest.approx(sum(expected), abs=1e-3)
    assert score.tokens == tokenizer.pieces(ids[1:])
    assert (empty.log_prob, empty.tokens, empty.per_token) == (0, [], 0)


@pytest.mark.parametrize("stride", [1, 5, CONTEXT])
def test_windows_of_long_texts_begin_every_stride(generator: Generator, tokenizer: Tokenizer, stride: int) -> None:
    text = "dogs and cats " * 12
    ids = [BOS, *tokenizer.encode(text)]
    (score,) = generator.score([text], stride=stride)
    expected: list[float] = []
    for first in range(0, len(ids), stride):  # as in the documentation of transformers, token by token
        window = ids[first : first + CONTEXT + 1]
        for place in range(1, len(window)):
            if first + place - 1 == len(expected):
                expected.append(defined_log_probs(generator, window[:place])[window[place]])
    assert score.token_log_probs == pytest.approx(expected, abs=1e-4)


def test_a_stream_can_be_abandoned(generator: Generator) -> None:
    assert len(list(islice(generator.stream("the", max_tokens=10**6), 3))) == 3


def test_mistakes_are_named(generator: Generator) -> None:
    for options, message in [
        ({"beam": 3}, "a language model has no search option beam"),
        ({"temperature": -1.0}, "temperature must be between 0 and 1000"),
        ({"max_tokens": 0}, "max_tokens must be an integer of at least 1, not 0"),
        ({"max_tokens": 2.5}, "max_tokens must be an integer of at least 1, not 2.5"),
        ({"stop": ["mat", ""]}, "stop must not be empty"),
        ({"num": 0}, "num must be an integer of at least 1"),
    ]:
        with pytest.raises(ConfigError, match=message):
            generator.generations(["the"], **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="stride must be an integer between 1 and 12"):
        generator.score(["a"], stride=13)


def test_a_translation_model_is_no_language_model(trained: object) -> None:
    with pytest.raises(ModelError, match="was trained for the task translate; it is not a language model"):
        Generator.load(trained.run, device="cpu")  # type: ignore[attr-defined]


def test_an_engine_is_chosen_for_the_model(
    generator: Generator, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_language_model(0, tokenizer.vocab_size)
    if load_library() is not None:
        assert isinstance(Generator(model, tokenizer, engine="auto").decoder, NativeLanguageModel)
    assert Generator(model, tokenizer).decoder is model
    window = generator.model  # of another architecture
    assert Generator(window, tokenizer, engine="auto").decoder is window
    with pytest.raises(ConfigError, match="native has no generation with models of the architecture window"):
        _ = Generator(window, tokenizer, engine="native").decoder
    monkeypatch.setattr("transduce.fast.native.library.load_library", lambda: None)
    assert Generator(model, tokenizer, engine="auto").decoder is model
    with pytest.raises(ConfigError, match="engine native needs a model on the CPU, and a"):
        _ = Generator(model, tokenizer, engine="native").decoder


def test_contexts_and_options_with_the_native_engine(tokenizer: Tokenizer) -> None:
    if load_library() is None:
        pytest.skip("no C compiler")
    model = small_language_model(1, tokenizer.vocab_size, positions="learned", max_positions=10, norm="pre")
    generator = Generator(model, tokenizer, engine="native")
    assert generator.context == 10
    (greedy,), (other,) = generator.generations(["the cat sat on the mat." * 3, ""], max_tokens=40, temperature=0)
    assert {len(greedy.tokens), len(other.tokens)} <= set(range(41))
    drawn = generator.generations(["the cat"], num=3, max_tokens=25, seed=2, no_repeat=2)[0]
    assert len({one.text for one in drawn}) == 3
    for one in drawn:
        pairs = list(zip(one.tokens, one.tokens[1:], strict=False))
        assert len(pairs[:8]) == len(set(pairs[:8]))  # within one context


@pytest.mark.parametrize("engine", ["plain", "native"])
def test_long_prompts_are_read_and_scored_in_parts(
    tokenizer: Tokenizer, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does other work between the parts, which do not change the results."""
    if engine == "native" and load_library() is None:
        pytest.skip("there is no library for this machine")
    generator = Generator(small_language_model(1, tokenizer.vocab_size), tokenizer, context=80, engine=engine)
    prompts, options = (
        ["the cat sat on the mat. " * 5, "dogs"],
        dict[str, Any](num=2, max_tokens=4, stop=(), temperature=0),
    )
    whole, scores = list(generator.events(prompts, **options)), generator.score(prompts, stride=7)
    monkeypatch.setattr("transduce.fast.native.language_model._PREFILL_TOKENS", 16)
    monkeypatch.setattr("transduce.language_model.likelihood._ROWS", 8)
    steps = list(generator.event_steps(prompts, **options))
    assert steps.count(None) >= 2
    assert [event for event in steps if event] == whole
    *parts, last = generator.score_steps(prompts, stride=7, batch_tokens=16)
    assert len(parts) > 8
    assert last is not None
    for score, expected in zip(last, scores, strict=True):
        assert score.token_log_probs == pytest.approx(expected.token_log_probs, abs=1e-5)


def test_a_text_instead_of_a_list_is_refused(generator: Generator) -> None:
    with pytest.raises(DataError, match="texts must be a list of texts; for a single text, give a list of one"):
        generator.score("the cat")
    with pytest.raises(DataError, match="prompts must be a list of texts"):
        generator.generations("the cat")
    with pytest.raises(DataError, match=r"^prompts\[1\] is not a text, but of the type NoneType"):
        generator.generate(["the cat", None])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"^stop\[1\] is not a text, but of the type NoneType"):
        generator.generate("the cat", stop=["mat", None])  # type: ignore[list-item]


def test_arguments_of_other_types_are_named(generator: Generator) -> None:
    nothing: Any = None
    once: Any = iter(["the cat"])
    with pytest.raises(DataError, match=r"^prompts must be a list of texts, not of the type NoneType"):
        generator.generate(nothing)
    with pytest.raises(DataError, match=r"^prompts must be a list of texts, not of the type list_iterator"):
        generator.generations(once)
    with pytest.raises(DataError, match=r"^stop must be a list of texts, not of the type NoneType"):
        generator.generate("the cat", stop=nothing)
    half: Any = 1.5
    with pytest.raises(ConfigError, match=r"^num must be an integer of at least 1, not 1.5"):
        generator.generations(["the cat"], num=half)
    with pytest.raises(ConfigError, match=r"^stride must be an integer between 1 and"):
        generator.score(["the cat"], stride=half)

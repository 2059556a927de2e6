"""The translator with an untrained model: order, shape and independence do not depend on the weights."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any

import pytest
import torch
from helpers import small_model

from transduce.engines.plain import PlainEngine
from transduce.errors import ConfigError, DataError, ModelError
from transduce.evaluation.scores import score
from transduce.models.alignment import cross_attention
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.model import Model
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import Tokenizer
from transduce.translator import Translation, Translator

TEXTS = ["ba be", "gugu dada bibo baba", "  x ", "bada gobi dudu begu bobo", "汉 😀", "ba be"]


@pytest.fixture(scope="module")
def make(untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer) -> Callable[..., Translator]:
    """A translator; short outputs, for speed."""

    def make(**settings: Any) -> Translator:
        translator = Translator(untrained_model, toy_tokenizer, **settings)
        translator.config = replace(translator.config, max_extra=4)
        return translator

    return make


@pytest.fixture(scope="module")
def translator(make: Callable[..., Translator]) -> Translator:
    return make()


def test_outputs_come_in_the_order_of_the_inputs(translator: Translator) -> None:
    together = translator.translate(TEXTS)
    assert together == [translator.translate(text) for text in TEXTS]
    assert translator.translate(TEXTS[::-1]) == together[::-1]
    assert len(set(together)) > 2  # or the order would show nothing


def test_one_text_gives_one_text_and_a_list_gives_a_list(translator: Translator) -> None:
    assert isinstance(translator.translate("ba be"), str)
    assert translator.translate(["ba be"]) == [translator.translate("ba be")]
    assert translator.translate([]) == []


@pytest.mark.parametrize("empty", ["", " ", "\t", "\u3000"])
def test_an_empty_text_stays_empty(translator: Translator, empty: str) -> None:
    assert translator.translate(empty) == ""
    around = translator.translate(["ba be", empty, "gi"])
    assert around == [translator.translate("ba be"), "", translator.translate("gi")]
    assert translator.hypotheses([empty], nbest=4, align=True) == [[Translation("", 0.0, 0.0, [])]]


def test_the_n_best_are_sorted_and_differ(translator: Translator) -> None:
    for best in translator.hypotheses(TEXTS, beam=5, nbest=5):
        assert len(best) == 5
        assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)
        assert len({tuple(one.tokens) for one in best}) == 5
        assert all(one.log_prob < 0 for one in best)


def test_the_first_of_the_n_best_is_the_translation(translator: Translator) -> None:
    best = translator.hypotheses(TEXTS, beam=4, nbest=4)
    assert [one[0].text for one in best] == translator.translate(TEXTS, beam=4)


def test_text_is_that_of_the_tokens(translator: Translator, toy_tokenizer: Tokenizer) -> None:
    ids = {toy_tokenizer.pieces([i])[0]: i for i in range(toy_tokenizer.vocab_size)}
    for text, best in zip(TEXTS, translator.hypotheses(TEXTS, nbest=2), strict=True):
        for one in best:
            decoded = toy_tokenizer.decode([ids[token] for token in one.tokens])
            assert text.replace(text.strip(), decoded) == one.text


def test_alignments_point_to_source_tokens(translator: Translator) -> None:
    for text, best in zip(TEXTS, translator.hypotheses(TEXTS, nbest=3, align=True), strict=True):
        source = translator.source_tokens(text)
        for one in best:
            assert one.alignment is not None
            assert len(one.alignment) == len(one.tokens)
            assert all(0 <= place < len(source) for place in one.alignment)
    assert translator.hypotheses(["ba be"])[0][0].alignment is None


def test_alignments_do_not_depend_on_batch_neighbours(translator: Translator) -> None:
    together = translator.hypotheses(TEXTS, align=True)
    for text, best in zip(TEXTS, together, strict=True):
        assert translator.hypotheses([text], align=True)[0][0].alignment == best[0].alignment


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("batch_tokens", [1, 50, 4096])
def test_results_do_not_depend_on_batch_neighbours(
    make: Callable[..., Translator], beam: int, batch_tokens: int
) -> None:
    plain = PlainEngine(make().model, batch_tokens)
    many = make(engine=plain).hypotheses(TEXTS, beam=beam)
    alone = [make().hypotheses([text], beam=beam)[0] for text in TEXTS]
    for a, b in zip(many, alone, strict=True):
        assert a[0].tokens == b[0].tokens
        assert a[0].score == pytest.approx(b[0].score, abs=1e-4)
        assert a[0].log_prob == pytest.approx(b[0].log_prob, abs=1e-4)


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4}, {"sample": True}])
def test_every_output_starts_with_its_prefix(translator: Translator, options: dict[str, Any]) -> None:
    prefixes = ["gugu", "", "ba be bi", " x"]
    texts = TEXTS[:4]
    found = translator.hypotheses(texts, prefixes=prefixes, **options)
    for prefix, best in zip(prefixes, found, strict=True):
        assert best[0].text.startswith(prefix)
    if not options.get("sample"):
        assert found[1][0].text == translator.translate(texts[1], **options)


def test_a_prefix_longer_than_the_output_may_be_is_still_forced(translator: Translator) -> None:
    prefix = "ba be bi bo bu " * 6
    assert translator.hypotheses(["x"], prefixes=[prefix])[0][0].text.startswith(prefix)


def test_a_model_without_a_position_for_words_refuses_every_text(toy_tokenizer: Tokenizer) -> None:
    model = small_model(0, toy_tokenizer.vocab_size, positions="learned", max_positions=1).eval()
    translator = Translator(model, toy_tokenizer)
    assert translator.max_source_length == 0  # not the same as no limit
    with pytest.raises(DataError, match=r"line 1 has \d+ tokens, more than the 0 this model takes at once"):
        translator.hypotheses(["babo"], long="refuse")
    with pytest.raises(ConfigError, match="exceeds the 1 learned positions"):
        translator.translate("babo")


def test_a_prefix_longer_than_the_learned_positions_is_refused(toy_tokenizer: Tokenizer) -> None:
    translator = Translator(small_model(0, toy_tokenizer.vocab_size, positions="learned").eval(), toy_tokenizer)
    assert translator.model.longest == 63
    (whole,) = translator.parts("x", prefix="x" * 62)
    assert len(whole.prefix) == 63
    assert translator.hypotheses(["x"], prefixes=["x" * 62])[0][0].text == "x" * 62
    with pytest.raises(DataError, match="line 2 has a prefix of 64 tokens, more than the 63 this model can generate"):
        translator.hypotheses(["x", "x"], prefixes=["", "x" * 63])


def test_all_n_best_outputs_start_with_the_prefix(translator: Translator) -> None:
    best = translator.hypotheses(["gi du"], prefixes=["dada"], nbest=4)[0]
    assert len(best) == 4
    assert all(one.text.startswith("dada") for one in best)


def test_a_long_text_is_translated_in_pieces(make: Callable[..., Translator]) -> None:
    translator = make(max_source_length=9)
    text = "Baba bebe. Gigi gogo. Dudu dada."
    pieces = ["Baba bebe.", "Gigi gogo.", "Dudu dada."]
    assert len(translator.tokenizer.encode(text)) > 9 >= max(len(translator.tokenizer.encode(one)) for one in pieces)
    best = translator.hypotheses(["ba", text, "gi"], nbest=2)
    apart = [translator.hypotheses([piece], nbest=2)[0] for piece in pieces]
    assert best[1][0].text == " ".join(one[0].text for one in apart)
    assert best[1][0].score == pytest.approx(sum(one[0].score for one in apart), abs=1e-4)
    assert best[1][0].score >= best[1][1].score
    assert [one[0].text for one in (best[0], best[2])] == translator.translate(["ba", "gi"])


def test_a_long_text_without_spaces_is_translated_in_pieces(make: Callable[..., Translator]) -> None:
    translator = make(max_source_length=8)
    assert isinstance(translator.translate("汉" * 50), str)


def test_the_prefix_of_a_long_text_begins_its_first_piece_only(make: Callable[..., Translator]) -> None:
    translator = make(max_source_length=8)
    text = translator.hypotheses(["Baba bebe. Gigi gogo."], prefixes=["dodo"])[0][0].text
    assert text.startswith("dodo")
    assert text.endswith(translator.translate("Gigi gogo."))


def test_a_long_text_can_be_refused_with_its_line(make: Callable[..., Translator]) -> None:
    translator = make(max_source_length=8)
    with pytest.raises(DataError, match=r"line 12 has \d+ tokens, more than the 8"):
        translator.hypotheses(["ba", "ba be bi bo bu da de di do du"], long="refuse", first_line=11)


def test_a_text_of_exactly_the_maximum_length_is_not_split(make: Callable[..., Translator]) -> None:
    text = "ba be bi bo bu da de di do du"
    length = len(make().tokenizer.encode(text))
    exact, below = (make(max_source_length=n).hypotheses([text], align=True)[0][0] for n in (length, length - 1))
    assert exact == make().hypotheses([text], align=True)[0][0]
    assert below.alignment is not None  # it came in parts, whose tokens lie end to end
    assert len(below.alignment) == len(below.tokens)
    assert len(make(max_source_length=length - 1).source_tokens(text)) > max(below.alignment) >= length // 2


def test_a_text_instead_of_a_list_is_refused(translator: Translator) -> None:
    with pytest.raises(DataError, match="texts must be a list of texts"):
        translator.hypotheses("ba be")
    with pytest.raises(DataError, match="prefixes must be a list of texts"):
        translator.hypotheses(["ba be"], prefixes="b")
    with pytest.raises(DataError, match="sources must be a list of texts"):
        translator.score("ba be", "ba be")
    with pytest.raises(DataError, match="the system must be a list of texts"):
        score("ba be", ["ba be"])
    with pytest.raises(DataError, match="references must be a list of texts"):
        score(["ba be"], "ba be")


def test_what_is_not_a_list_is_refused(translator: Translator) -> None:
    nothing: Any = None
    with pytest.raises(DataError, match=r"^texts must be a list of texts, not of the type NoneType"):
        translator.translate(nothing)
    with pytest.raises(DataError, match=r"^sources must be a list of texts, not of the type NoneType"):
        translator.score(nothing, ["ba"])
    with pytest.raises(DataError, match=r"^references must be a list of texts, not of the type NoneType"):
        score(["ba be"], nothing)
    once: Any = iter(TEXTS[:2])
    assert translator.translate(once) == translator.translate(TEXTS[:2])


@pytest.mark.parametrize(
    ("value", "message"),
    [(float("nan"), "is not a text, but of the type float"), ("ba \ud83d", "is not valid Unicode")],
)
def test_what_is_not_a_text_is_named(translator: Translator, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"^line 2 {message}"):
        translator.translate(["ba", value])
    with pytest.raises(DataError, match=f"^the prefix of line 1 {message}"):
        translator.hypotheses(["ba"], prefixes=[value])
    with pytest.raises(DataError, match=rf"^targets\[1\] {message}"):
        translator.score(["ba", "be"], ["ba", value])


def test_the_numbers_of_texts_and_prefixes_must_agree(translator: Translator) -> None:
    assert len(translator.hypotheses(TEXTS, prefixes=["ba"] * len(TEXTS))) == len(TEXTS)
    with pytest.raises(DataError, match=r"2 texts but 1 prefixes"):
        translator.hypotheses(["ba", "be"], prefixes=["ba"])


def test_a_text_longer_than_the_position_table_is_aligned(make: Callable[..., Translator]) -> None:
    translator = make(max_source_length=1200)
    text = "ba " * (1100 // len(translator.tokenizer.encode("ba ")))
    source, output = translator.tokenizer.encode(text), [5, 6]
    assert cross_attention(copy.deepcopy(translator.model), [source], [output]).shape == (1, 3, len(source) + 1)


def test_outputs_keep_their_limit(translator: Translator, toy_tokenizer: Tokenizer) -> None:
    for text, best in zip(TEXTS, translator.hypotheses(TEXTS, nbest=2, max_extra=1), strict=True):
        limit = len(toy_tokenizer.encode(text)) + 1
        assert all(len(one.tokens) <= limit for one in best)


def test_sampling_is_a_function_of_its_seed(translator: Translator) -> None:
    texts = TEXTS[:3]

    def draw(seed: int) -> list[str]:
        return translator.translate(texts, sample=True, seed=seed)

    assert draw(5) == draw(5)
    assert len({tuple(draw(seed)) for seed in range(5)}) > 1


def test_sampling_returns_nbest_outputs(translator: Translator) -> None:
    best = translator.hypotheses(["ba be"], sample=True, nbest=3, beam=1)[0]
    assert len(best) == 3
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)


@pytest.mark.parametrize("options", [{"beam": 0}, {"nbest": 5}, {"nbest": 0}, {"temperature": -1.0}, {"top_p": 0.0}])
def test_search_options_out_of_range_are_refused(translator: Translator, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        translator.translate("ba", **options)


def test_translating_does_not_change_the_model(translator: Translator) -> None:
    before = {name: x.clone() for name, x in translator.model.state_dict().items()}
    translator.hypotheses(TEXTS, nbest=2, align=True)
    assert all(torch.equal(x, before[name]) for name, x in translator.model.state_dict().items())
    assert all(parameter.grad is None for parameter in translator.model.parameters())
    assert not translator.model.training


def test_learned_positions_limit_the_output_length(untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer) -> None:
    torch.manual_seed(1)
    config = replace(untrained_model.config, positions="learned", max_positions=16)
    translator = Translator(
        EncoderDecoder(config, toy_tokenizer.vocab_size).eval(), toy_tokenizer, max_source_length=12
    )
    for best in translator.hypotheses(["ba be", "gugu dada"]):
        assert len(best[0].tokens) <= 16


def test_sampling_differs_between_equal_texts(untrained_model: Any, toy_tokenizer: Tokenizer) -> None:
    translator = Translator(
        untrained_model, toy_tokenizer, engine=PlainEngine(untrained_model, 1)
    )  # each a batch of its own
    outputs = translator.translate(["babo dedu"] * 4, sample=True, max_extra=5)
    assert len(set(outputs)) > 1
    assert outputs == translator.translate(["babo dedu"] * 4, sample=True, max_extra=5)


def test_a_stream_reads_no_further_ahead_than_two_windows(translator: Translator) -> None:
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for number in count():
            read += 1
            yield TEXTS[number % len(TEXTS)]

    expected = translator.translate(TEXTS)
    stream = translator.stream(texts(), window=4)
    for number, best in enumerate(islice(stream, 30)):
        assert best[0].text == expected[number % len(TEXTS)]
        assert read <= number + 1 + 8


def test_progress_counts_texts_whose_turn_has_not_come(untrained_model: Model, toy_tokenizer: Tokenizer) -> None:
    one_by_one = PlainEngine(untrained_model, 1)  # the longest text first
    translator = Translator(untrained_model, toy_tokenizer, engine=one_by_one)
    events: list[str] = []
    stream = translator.stream(["babo", "", "babo dedu gigo"], text_done=lambda: events.append("translated"))
    events += ["yielded" for _ in stream]
    assert events == ["translated"] * 3 + ["yielded"] * 3


def test_arguments_without_a_meaning_are_refused(make: Callable[..., Translator]) -> None:
    with pytest.raises(ConfigError, match="long must be one of split, refuse, not 'cut'"):
        make().hypotheses(["babo"], long="cut")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="patterns of protected text must be a list"):
        Translator.load(protect="babo")


def test_plain_runs_if_the_engine_does_not_support_the_options(make: Callable[..., Translator]) -> None:
    class GreedyOnly(PlainEngine):
        @staticmethod
        def supports(model: Model, options: SearchConfig) -> str | None:
            return None if options.beam == 1 else "no beam search"

    greedy_only = make(engine=GreedyOnly(make().model))
    assert isinstance(greedy_only.engine_for(SearchConfig(beam=1)), GreedyOnly)
    assert not isinstance(greedy_only.engine_for(SearchConfig(beam=2)), GreedyOnly)
    assert greedy_only.translate(TEXTS, beam=2) == make().translate(TEXTS, beam=2)


def test_scores_that_are_not_finite_are_an_error(make: Callable[..., Translator]) -> None:
    class NotFinite(PlainEngine):
        def start_session(self, config: SearchConfig) -> Any:
            session = super().start_session(config)
            step = session.step
            session.step = lambda: [(key, []) for key, _ in step()]  # type: ignore[method-assign]
            return session

    with pytest.raises(ModelError, match="not finite numbers"):
        make(engine=NotFinite(make().model)).translate("ba be")


def test_a_by_sentence_model_translates_the_sentences_of_a_text_separately(
    make: Callable[..., Translator],
) -> None:
    translator = make(by_sentence=True)
    sentences = ["Ba be.", "Gugu dada!", "Bibo baba?"]
    assert translator.translate(" ".join(sentences)) == " ".join(translator.translate(sentences))
    assert translator.translate("\n".join(sentences)) == "\n".join(translator.translate(sentences))
    assert make().translate(" ".join(sentences)) != translator.translate(" ".join(sentences))

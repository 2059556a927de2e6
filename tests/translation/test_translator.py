"""The translator with an untrained model: order, shape and independence do not depend on the weights."""

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import pytest
import torch

from transduce.errors import ModelError
from transduce.models.model import Model
from transduce.search.options import SearchConfig
from transduce.search.plain_engine import PlainEngine
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.translation import Translation
from transduce.translation.translator import Translator


def test_outputs_come_in_the_order_of_the_inputs(translator: Translator, texts: list[str]) -> None:
    together = translator.translate(texts)
    assert together == [translator.translate(text) for text in texts]
    assert translator.translate(texts[::-1]) == together[::-1]
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


def test_a_by_sentence_model_translates_the_sentences_of_a_text_separately(
    make_translator: Callable[..., Translator],
) -> None:
    translator = make_translator(by_sentence=True)
    sentences = ["Ba be.", "Gugu dada!", "Bibo baba?"]
    assert translator.translate(" ".join(sentences)) == " ".join(translator.translate(sentences))
    assert translator.translate("\n".join(sentences)) == "\n".join(translator.translate(sentences))
    assert make_translator().translate(" ".join(sentences)) != translator.translate(" ".join(sentences))


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("batch_tokens", [1, 50, 4096])
def test_results_do_not_depend_on_batch_neighbours(
    make_translator: Callable[..., Translator], beam: int, batch_tokens: int, texts: list[str]
) -> None:
    plain = PlainEngine(make_translator().model, batch_tokens)
    many = make_translator(engine=plain).hypotheses(texts, beam=beam)
    one_by_one = [make_translator().hypotheses([text], beam=beam)[0] for text in texts]
    for a, b in zip(many, one_by_one, strict=True):
        assert a[0].tokens == b[0].tokens
        assert a[0].score == pytest.approx(b[0].score, abs=1e-4)
        assert a[0].log_prob == pytest.approx(b[0].log_prob, abs=1e-4)


def test_translating_does_not_change_the_model(translator: Translator, texts: list[str]) -> None:
    before = {name: x.clone() for name, x in translator.model.state_dict().items()}
    translator.hypotheses(texts, nbest=2, align=True)
    assert all(torch.equal(x, before[name]) for name, x in translator.model.state_dict().items())
    assert all(parameter.grad is None for parameter in translator.model.parameters())
    assert not translator.model.training


def test_a_stream_reads_no_further_ahead_than_two_windows(translator: Translator, texts: list[str]) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        for number in count():
            read += 1
            yield texts[number % len(texts)]

    expected = translator.translate(texts)
    stream = translator.stream(endless(), window=4)
    for number, best in enumerate(islice(stream, 30)):
        assert best[0].text == expected[number % len(texts)]
        assert read <= number + 1 + 8


def test_progress_counts_texts_whose_turn_has_not_come(untrained_model: Model, toy_tokenizer: Tokenizer) -> None:
    one_by_one = PlainEngine(untrained_model, 1)  # the longest text first
    translator = Translator(untrained_model, toy_tokenizer, engine=one_by_one)
    events: list[str] = []
    stream = translator.stream(["babo", "", "babo dedu gigo"], text_done=lambda: events.append("translated"))
    events += ["yielded" for _ in stream]
    assert events == ["translated"] * 3 + ["yielded"] * 3


def test_plain_runs_if_the_engine_does_not_support_the_options(
    make_translator: Callable[..., Translator], texts: list[str]
) -> None:
    class GreedyOnly(PlainEngine):
        @staticmethod
        def supports(model: Model, options: SearchConfig) -> str | None:
            return None if options.beam == 1 else "no beam search"

    greedy_only = make_translator(engine=GreedyOnly(make_translator().model))
    assert isinstance(greedy_only.engine_for(SearchConfig(beam=1)), GreedyOnly)
    assert not isinstance(greedy_only.engine_for(SearchConfig(beam=2)), GreedyOnly)
    assert greedy_only.translate(texts, beam=2) == make_translator().translate(texts, beam=2)


def test_scores_that_are_not_finite_are_an_error(make_translator: Callable[..., Translator]) -> None:
    class NotFinite(PlainEngine):
        def start_session(self, config: SearchConfig) -> Any:
            session = super().start_session(config)
            step = session.step
            session.step = lambda: [(key, []) for key, _ in step()]  # type: ignore[method-assign]
            return session

    with pytest.raises(ModelError, match="not finite numbers"):
        make_translator(engine=NotFinite(make_translator().model)).translate("ba be")

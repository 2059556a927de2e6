"""What a scheduler delivers with a real model: the same outputs as for each request by itself."""

from typing import Any

import pytest
from scripted_engine import Client

from transduce.errors import ConfigError
from transduce.fast.choose import pick_engine
from transduce.search.engine import search_all
from transduce.search.options import SearchConfig
from transduce.search.plain_engine import PlainEngine
from transduce.serve.metrics import ServerMetrics
from transduce.serve.scheduler import ScheduledRequest, Scheduler
from transduce.translation.stages.search import run_searches
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(untrained_model: Any, toy_tokenizer: Any) -> Translator:
    return Translator(untrained_model, toy_tokenizer, engine=PlainEngine(untrained_model, batch_tokens=64))


def submit(scheduler: Scheduler, translator: Translator, texts: list[str], **options: Any) -> Client:
    client = Client()
    jobs = [job for text in texts for job in translator.segments(text)]
    config = SearchConfig(max_extra=2, **options)
    with scheduler.reserve():
        scheduler.submit(ScheduledRequest(translator, config, jobs, (), client.deliver))
    return client


@pytest.mark.parametrize("name", ["plain", "native"])
def test_batched_requests_have_the_same_outputs_as_single_ones(
    untrained_model: Any, toy_tokenizer: Any, toy_pairs: Any, name: str
) -> None:
    try:
        engine = pick_engine(name, untrained_model, threads=2)
    except ConfigError as error:
        pytest.skip(str(error))
    translator = Translator(untrained_model, toy_tokenizer, engine=engine)
    sources = [source for source, _ in toy_pairs[:24]]
    expected = {
        beam: [best[0].text for best in translator.hypotheses(sources, beam=beam, max_extra=2)] for beam in (1, 2, 4)
    }
    scheduler = Scheduler(100, ServerMetrics())
    clients = [
        (beam, start, submit(scheduler, translator, sources[start : start + 2], beam=beam))
        for start in range(0, 24, 2)
        for beam in (1, 2, 4)
    ]
    scheduler.close()
    for beam, start, client in clients:
        assert [client.outputs[n] for n in range(2)] == expected[beam][start : start + 2]


def test_samples_depend_on_the_seed_and_not_on_other_requests(translator: Translator, toy_pairs: Any) -> None:
    texts = [source for source, _ in toy_pairs[:12]]
    samples = []
    for others in (0, 5):
        scheduler = Scheduler(100, ServerMetrics())
        for n in range(others):
            submit(scheduler, translator, texts, sample=True, seed=n)
            submit(scheduler, translator, texts[n:], beam=2)
        clients = [submit(scheduler, translator, texts, sample=True, seed=seed) for seed in (7, 7, 8)]
        scheduler.close()
        assert clients[0].outputs == clients[1].outputs != clients[2].outputs
        samples.append(clients[0].outputs)
    assert samples[0] == samples[1]


def test_outputs_are_completed_in_small_portions(translator: Translator, toy_pairs: Any) -> None:
    config = SearchConfig(beam=4, nbest=4, max_extra=2)
    segments = [part for source, _ in toy_pairs[:6] for part in translator.segments(source)]
    results = search_all(translator.engine, segments, config)
    texts = [[segment] for segment in segments], [[best] for best in results]
    whole = translator.translation_searches(*texts, config, True, "words")
    expected = run_searches(translator.engine, whole)
    searches = translator.translation_searches(*texts, config, True, "words", 8)
    pauses, portioned = 0, None
    while portioned is None:
        try:
            jobs, _ = searches.send([]) if pauses else next(searches)
            assert not jobs
            pauses += 1
        except StopIteration as result:
            portioned = result.value
    assert 5 <= pauses <= sum(len(hypothesis.tokens) for best in results for hypothesis in best) / 8
    assert [[output.text for output in best] for best in portioned] == [
        [output.text for output in best] for best in expected
    ]
    assert portioned[-1][-1].alignment == expected[-1][-1].alignment
    assert portioned[0][0].word_confidences == pytest.approx(expected[0][0].word_confidences)

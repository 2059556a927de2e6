"""A lexical shortlist in the native engine: as if all other tokens had no probability, in any batch."""

import random
from array import array
from dataclasses import replace
from itertools import accumulate, chain

import pytest
import torch
from engines import assert_same, native_engine
from helpers import FIRST_WORD, random_sentences, small_model

from transduce.fast.native.shortlist import Shortlist
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import EOS

V = 300
MODEL = small_model(vocab_size=V, output_bias=True)
SOURCES = random_sentences([1, 3, 6, 9, 4, 7, 2], V, seed=3)


def random_shortlist(seed: int, per_token: int) -> Shortlist:
    draw = random.Random(seed)
    return shortlist_of([sorted(draw.sample(range(FIRST_WORD, V), per_token)) for _ in range(V)])


def shortlist_of(lists: list[list[int]]) -> Shortlist:
    return Shortlist(array("i", accumulate(map(len, lists), initial=0)), array("i", chain.from_iterable(lists)))


def search_of_definition(job: Job, tokens: list[int], search: SearchConfig, threads: int) -> list[Hypothesis]:
    """The search over the vocabulary of a model whose bias excludes all other tokens."""
    model = small_model(vocab_size=V, output_bias=True)
    assert model.output_bias_V is not None
    with torch.no_grad():
        bias_V = model.output_bias_V.clone()
        model.output_bias_V.fill_(-1e6)
        model.output_bias_V[tokens] = bias_V[tokens]
    return search_all(native_engine(model, threads), [job], replace(search, shortlist=False))[0]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("beam", [1, 4, 9])
def test_a_shortlist_excludes_all_other_tokens(beam: int, threads: int) -> None:
    shortlist, engine = random_shortlist(1, 12), native_engine(MODEL, threads)
    engine.shortlist = shortlist
    jobs = [Job(source, [], options=None) for source in SOURCES]
    jobs += [Job(SOURCES[3], [9, 200, 5]), Job(SOURCES[5], [], terms=(17, 250))]
    search = SearchConfig(beam=beam, nbest=beam, shortlist=True, max_extra=3)
    lists = [sorted(shortlist.tokens(job.tokens, [*job.prefix, *job.terms])) for job in jobs]
    assert all(EOS in tokens and len(tokens) < V / 2 for tokens in lists)
    found = search_all(engine, jobs, search)
    expected = [search_of_definition(job, tokens, search, threads) for job, tokens in zip(jobs, lists, strict=True)]
    assert_same(found, expected)
    assert [len(best) for best in found] == [beam] * len(jobs)
    for best, tokens, job in zip(found, lists, jobs, strict=True):
        assert all({*one.tokens} <= {*tokens} and one.tokens[: len(job.prefix)] == job.prefix for one in best)


def test_jobs_with_and_without_a_shortlist_share_a_batch() -> None:
    engine = native_engine(MODEL, 2)
    engine.shortlist = random_shortlist(2, 6)
    searches = [SearchConfig(beam=3, shortlist=number % 2 == 0, max_extra=3) for number in range(len(SOURCES))]
    jobs = [Job(source, [], options=search) for source, search in zip(SOURCES, searches, strict=True)]
    together = search_all(engine, jobs, SearchConfig())
    single = [
        search_all(engine, [Job(source, [])], search)[0] for source, search in zip(SOURCES, searches, strict=True)
    ]
    assert together == single  # to the last bit


def test_sentences_share_the_tokens_of_the_end_marker_although_other_lists_are_longer() -> None:
    """Otherwise an engine would keep the rows of as many lists as there are source tokens."""
    lists = [[*range(20, 32)] if token > EOS else [7, 8] if token == EOS else [] for token in range(V)]
    engine = native_engine(MODEL)
    engine.shortlist = shortlist_of(lists)
    assert engine.shortlists
    found = [engine.shortlists.of(Job(source, [])) for source in SOURCES]
    assert [(marker, common.tokens.tolist()) for marker, common, _ in found] == [(EOS, [7, 8])] * len(SOURCES)
    for source, (_, _, own) in zip(SOURCES, found, strict=True):
        assert {*own.tokens} == {EOS, *source, *range(20, 32)} - {7, 8}

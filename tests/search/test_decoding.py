"""Decoding step by step against the whole forward pass, and search against enumeration of everything."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from table_decoder import (
    BOS,
    EOS,
    EXACT_BEAM,
    PAD,
    UNK,
    WORDS,
    TableDecoder,
    all_outputs,
    assert_same_outputs,
    greedy_output,
    narrow_beam,
    penalty,
    roll_out,
)  # fmt: skip

from transduce.search import beam as beam_module
from transduce.search.beam import BeamState, beam_search
from transduce.search.decoder import block_repeated_ngrams, length_penalty
from transduce.search.options import SearchConfig
from transduce.search.sampling import greedy_choice, sampler
from transduce.search.search import search

ALPHAS = [0.0, 0.6, 1.0, -0.5]


# Beam search


@pytest.mark.parametrize(("length", "alpha", "value"), [(1, 0.6, 1.0), (7, 0.6, 2**0.6), (13, 1, 3), (7, -1, 0.5)])
def test_the_length_penalty_is_five_plus_length_over_six_to_the_alpha(length: int, alpha: float, value: float) -> None:
    assert length_penalty(length, alpha) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("length", [1, 2, 50])
def test_without_alpha_the_length_penalty_is_none(length: int) -> None:
    assert length_penalty(length, 0.0) == 1.0


@pytest.mark.parametrize("nbest", [1, 3, EXACT_BEAM])
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_what_enumeration_finds(seed: int, alpha: float, nbest: int) -> None:
    decoder = TableDecoder(seed)
    limits = {"a": 4, "b": 0, "c": 2, "d": 4, "e": 1, "f": 3}
    found = beam_search(decoder, list(limits), list(limits.values()), beam=EXACT_BEAM, alpha=alpha, nbest=nbest)
    expected = [all_outputs(decoder, name, limit, alpha)[:nbest] for name, limit in limits.items()]
    assert_same_outputs(found, expected)


@pytest.mark.parametrize("end_bonus", [-3.0, 3.0], ids=["long outputs", "short outputs"])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_wide_beam_is_exact_for_long_and_for_short_outputs(alpha: float, end_bonus: float) -> None:
    decoder = TableDecoder(9, end_bonus)
    found = beam_search(decoder, ["a", "b"], [4, 3], beam=EXACT_BEAM, alpha=alpha, nbest=5)
    assert_same_outputs(found, [all_outputs(decoder, name, limit, alpha)[:5] for name, limit in [("a", 4), ("b", 3)]])


@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_narrow_beam_keeps_the_best_at_each_step(alpha: float, beam: int) -> None:
    for seed in range(5):
        decoder = TableDecoder(seed)
        found = beam_search(decoder, ["a", "b", "c"], [6, 3, 5], beam=beam, alpha=alpha)
        expected = [
            narrow_beam(decoder, name, limit, beam, alpha)[:1] for name, limit in zip("abc", [6, 3, 5], strict=True)
        ]
        assert_same_outputs(found, expected)


def nothing_alive(beams: BeamState, t: int, alpha: float, nbest: int) -> list[bool]:
    return beams.alive_log_prob_BW[:, 0].isneginf().tolist()


@pytest.mark.parametrize(("beam", "nbest"), [(1, 1), (2, 1), (4, 1), (4, 4)])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_stopping_early_never_changes_the_result(
    alpha: float, beam: int, nbest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, limits = list("abcdef"), [9, 3, 7, 0, 9, 5]
    settings = {"beam": beam, "alpha": alpha, "nbest": nbest}
    saved_steps = 0
    for seed in range(6):
        early, late = TableDecoder(seed, end_bonus=1.0), TableDecoder(seed, end_bonus=1.0)
        found = beam_search(early, names, limits, **settings)
        with monkeypatch.context() as patch:
            patch.setattr(beam_module, "_is_final", nothing_alive)
            expected = beam_search(late, names, limits, **settings)
        assert late.steps == max(limits) + 1
        saved_steps += late.steps - early.steps
        assert_same_outputs(found, expected)
    assert saved_steps > 0, "none of these searches stopped early, so nothing was tested"


def test_a_longer_output_may_still_overtake_a_likelier_short_one() -> None:
    """Nothing said has 0.6, ten words have 0.4: over their penalties log 0.4 / (16/6) is more than log 0.6 / 1."""

    class Chain(TableDecoder):
        def logits(self, sentence: str, prefix: tuple[int, ...]) -> list[float]:
            end = 0.6 if prefix == () else 1e-9 if len(prefix) < 10 else 1 - 1e-9
            return [math.log(p) for p in (1e-12, 1e-12, 1e-12, end, 1 - end, 1e-12, 1e-12)]

    for beam in (1, 2, 4):
        ((hypothesis,),) = beam_search(Chain(0), ["a"], [10], beam=beam, alpha=1.0)
        assert hypothesis.tokens == [4] * 10
        assert hypothesis.score == pytest.approx(math.log(0.4) / (16 / 6), abs=1e-4)
        ((hypothesis,),) = beam_search(Chain(0), ["a"], [10], beam=beam, alpha=0.0)
        assert hypothesis.tokens == []


def test_outputs_are_as_long_as_their_limit_allows_and_no_longer() -> None:
    decoder, names, limits = TableDecoder(1, end_bonus=-50.0), list("abcde"), [3, 0, 7, 1, 7]
    alpha = 3.0  # the end is as unlikely everywhere, so that the longest output scores best
    searched = beam_search(decoder, names, limits, beam=3, alpha=alpha)
    greedy = roll_out(decoder, names, limits, greedy_choice, alpha=alpha)
    sampled = roll_out(decoder, names, limits, sampler(1.0, 0, 1.0, 1, "cpu"), alpha=alpha, rows=3)
    for outputs in (searched, greedy, sampled):
        for group, limit in zip(outputs, limits, strict=True):
            assert {len(hypothesis.tokens) for hypothesis in group} == {limit}


def test_markers_are_never_said_however_likely() -> None:
    decoder = TableDecoder(1)
    plain_logits = decoder.logits

    def logits(sentence: str, prefix: tuple[int, ...]) -> list[float]:
        return [x + 8 * (token in (PAD, UNK, BOS)) for token, x in enumerate(plain_logits(sentence, prefix))]

    decoder.logits = logits  # type: ignore[method-assign]
    outputs = beam_search(decoder, ["a", "b"], [5, 5], beam=4, alpha=0.6, nbest=4)
    outputs += roll_out(decoder, ["a", "b"], [5, 5], greedy_choice, alpha=0.6)
    outputs += roll_out(decoder, ["a", "b"], [5, 5], sampler(1.0, 0, 1.0, 1, "cpu"), alpha=0.6, rows=20)
    said = {token for group in outputs for hypothesis in group for token in hypothesis.tokens}
    assert said <= set(WORDS)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_forced_prefix_starts_the_output_and_the_rest_is_the_best_after_it(alpha: float) -> None:
    decoder = TableDecoder(2)
    names, limits, prefixes = list("abcd"), [4, 3, 4, 2], [(5,), (), (6, 4, 4, 5), (4, 6)]
    cases = list(zip(names, limits, prefixes, strict=True))
    found = beam_search(decoder, names, limits, beam=EXACT_BEAM, alpha=alpha, nbest=2, prefixes=prefixes)
    assert_same_outputs(found, [all_outputs(decoder, n, limit, alpha, prefix)[:2] for n, limit, prefix in cases])

    greedy = roll_out(decoder, names, limits, greedy_choice, alpha=alpha, prefixes=prefixes)
    assert [group[0].tokens for group in greedy] == [greedy_output(decoder, *case) for case in cases]
    sampled = roll_out(decoder, names, limits, sampler(1.0, 0, 1.0, 1, "cpu"), alpha=alpha, rows=5, prefixes=prefixes)
    for group, prefix in zip(sampled, prefixes, strict=True):
        assert all(tuple(hypothesis.tokens[: len(prefix)]) == prefix for hypothesis in group)


@pytest.mark.parametrize("beam", [2, 4])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_sentences_searched_together_come_out_as_one_by_one(alpha: float, beam: int) -> None:
    decoder = TableDecoder(7, end_bonus=0.5)
    names, limits = list("abcdefgh"), [8, 0, 5, 8, 2, 6, 1, 7]
    together = beam_search(decoder, names, limits, beam=beam, alpha=alpha, nbest=2)
    one_by_one = [
        beam_search(decoder, [name], [limit], beam=beam, alpha=alpha, nbest=2)[0]
        for name, limit in zip(names, limits, strict=True)
    ]
    assert_same_outputs(together, one_by_one)
    greedy = roll_out(decoder, names, limits, greedy_choice, alpha=alpha)
    for name, limit, group in zip(names, limits, greedy, strict=True):
        assert_same_outputs([group], roll_out(decoder, [name], [limit], greedy_choice, alpha=alpha))


# Minimum length


ENDS_AT_ONCE = [
    SearchConfig(beam=3, nbest=3),
    SearchConfig(beam=1),
    SearchConfig(sample=True, nbest=5),
    SearchConfig(sample=True, nbest=5, top_k=1),
    SearchConfig(sample=True, nbest=5, top_p=0.5),
]


@pytest.mark.parametrize("config", ENDS_AT_ONCE)
def test_outputs_have_the_minimum_length_even_if_the_end_is_almost_certain(config: SearchConfig) -> None:
    decoder, names, limits = TableDecoder(3, end_bonus=30.0), list("abcd"), [6, 2, 0, 5]
    prefixes = [(), (), (), (4, 5)]
    for min_length, lengths in [(0, [0, 0, 0, 2]), (1, [1, 1, 0, 2]), (3, [3, 2, 0, 3]), (9, [6, 2, 0, 5])]:
        found = search(decoder, names, limits, replace(config, min_length=min_length), prefixes=prefixes)
        assert [len(group[0].tokens) for group in found] == lengths
        for name, group in zip(names, found, strict=True):  # of the model itself, not renormalized
            assert group[0].log_prob == pytest.approx(decoder.log_prob(name, group[0].tokens), abs=1e-3)


def test_only_the_search_of_the_paper_returns_an_empty_output() -> None:
    decoder = TableDecoder(3, end_bonus=30.0)
    (of_default,), (of_paper,) = (search(decoder, ["a"], [6], SearchConfig(**o)) for o in ({}, {"min_length": 0}))
    assert (len(of_default[0].tokens), of_paper[0].tokens) == (1, [])


@pytest.mark.parametrize("config", [*ENDS_AT_ONCE[1:], SearchConfig(beam=3), SearchConfig(beam=3, no_repeat=1)])
def test_a_minimum_that_does_not_matter_changes_nothing(config: SearchConfig) -> None:
    decoder, names, limits = TableDecoder(4, end_bonus=-30.0), list("abcd"), [3, 1, 0, 3]
    plain, least = (search(decoder, names, limits, replace(config, min_length=n)) for n in (0, 1))
    assert plain == least


@pytest.mark.parametrize("config", [*ENDS_AT_ONCE, SearchConfig(beam=4)])
def test_an_output_ends_before_the_minimum_if_every_other_token_is_blocked(config: SearchConfig) -> None:
    config = replace(config, no_repeat=1, min_length=9)
    (group,) = search(TableDecoder(3), ["a"], [9], config)
    assert group
    for hypothesis in group:
        assert sorted(hypothesis.tokens) == sorted(WORDS)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_prefix_may_contain_the_end_before_the_minimum(beam: int) -> None:
    ((best, *_),) = search(TableDecoder(3), ["a"], [9], SearchConfig(beam=beam, min_length=5), prefixes=[[4, EOS]])
    assert best.tokens == [4]


# Greedy search


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_greedy_search_takes_the_likeliest_word_again_and_again(alpha: float) -> None:
    names, lengths = list("abcdefgh"), [3, 0, 5, 1, 6, 6, 6, 2]
    for seed in range(5):
        decoder = TableDecoder(seed)
        limits = [length + 2 for length in lengths]
        found = search(decoder, names, limits, SearchConfig(beam=1, length_penalty=alpha, min_length=0))
        for name, length, group in zip(names, lengths, found, strict=True):
            (hypothesis,) = group
            assert hypothesis.tokens == greedy_output(decoder, name, length + 2)
            assert hypothesis.log_prob == pytest.approx(decoder.log_prob(name, hypothesis.tokens), abs=1e-4)
            expected = hypothesis.log_prob / penalty(len(hypothesis.tokens) + 1, alpha)
            assert hypothesis.score == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_beam_of_one_is_greedy_search_where_the_end_is_certain_or_out_of_the_question(alpha: float) -> None:
    """Elsewhere a beam of one may do better: it also remembers an end that was the second choice."""
    names, limits = list("abcdefgh"), [5, 0, 7, 3, 8, 8, 8, 4]
    for seed in range(5):
        decoder = TableDecoder(seed, sharp_end=True)
        greedy = roll_out(decoder, names, limits, greedy_choice, alpha=alpha)
        assert_same_outputs(beam_search(decoder, names, limits, beam=1, alpha=alpha), greedy)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_of_one_never_does_worse_than_greedy_search(alpha: float) -> None:
    names, limits = list("abcdefgh"), [5, 0, 7, 3, 8, 8, 8, 4]
    for seed in range(5):
        decoder = TableDecoder(seed)
        greedy = roll_out(decoder, names, limits, greedy_choice, alpha=alpha)
        searched = beam_search(decoder, names, limits, beam=1, alpha=alpha)
        for one, other in zip(searched, greedy, strict=True):
            assert one[0].score >= other[0].score - 1e-5


# Repetition guard


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_guard_rules_out_exactly_what_would_repeat(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    said_RT = torch.randint(4, 7, (20, 12), generator=generator)
    for t in (0, 1, 2, 5, 11):
        log_prob_RV = torch.zeros(20, 9)
        block_repeated_ngrams(log_prob_RV, said_RT, t, length)
        for row, said in enumerate(said_RT[:, :t].tolist()):
            runs = {tuple(said[i : i + length]) for i in range(t - length + 1)}
            for token in range(9):
                repeats = t >= length and (*said[t - length + 1 :], token)[-length:] in runs
                assert (log_prob_RV[row, token] == -torch.inf) == repeats


@pytest.mark.parametrize("beam", [1, 3])
def test_no_output_repeats_itself_under_the_guard(beam: int) -> None:
    names, limits = list("abcd"), [8, 8, 8, 8]
    for decoder in (TableDecoder(seed, end_bonus=-2.0) for seed in range(4)):
        for group in search(decoder, names, limits, SearchConfig(beam=beam, no_repeat=2)):
            tokens = group[0].tokens
            pairs = list(pairwise(tokens))
            assert len(pairs) == len(set(pairs))
        free = search(decoder, names, limits, SearchConfig(beam=beam))
        assert free == search(decoder, names, limits, SearchConfig(beam=beam, no_repeat=9))


@pytest.mark.parametrize("beam", [1, 3])
def test_a_prefix_may_repeat_itself_under_the_guard(beam: int) -> None:
    config, prefix = SearchConfig(beam=beam, no_repeat=1), [5, 5, 5]
    ((best,),) = search(TableDecoder(0), ["a"], [8], config, prefixes=[prefix])
    assert best.tokens[:3] == prefix
    rest = best.tokens[3:]
    assert 5 not in rest
    assert len(rest) == len(set(rest))


def test_the_smallest_share_still_leaves_the_likeliest_word() -> None:
    log_prob_RV = torch.tensor([[0.1, 0.7, 0.2]]).log()
    assert sampler(1.0, 0, 5e-324, 1, "cpu")(log_prob_RV).tolist() == [1]

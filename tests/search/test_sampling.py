"""Sampling, against the probabilities of the model."""

import itertools
import math

import pytest
import torch
from table_decoder import (
    EOS,
    WORDS,
    TableDecoder,
    greedy_output,
    penalty,
    roll_out,
)  # fmt: skip

from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.search.sampling import sampler
from transduce.search.search import search

PROBABILITIES = {EOS: 0.05, 4: 0.5, 5: 0.3, 6: 0.15}


def draw_tokens(choose: object, count: int = 20_000) -> dict[int, float]:
    """How often each token is drawn from PROBABILITIES."""
    log_prob_V = torch.full((7,), -torch.inf)
    for token, probability in PROBABILITIES.items():
        log_prob_V[token] = math.log(probability)
    drawn_R = choose(log_prob_V.expand(count, -1))  # type: ignore[operator]
    return {token: (drawn_R == token).float().mean().item() for token in range(7)}


def assert_frequencies(found: dict[int, float], expected: dict[int, float], count: int = 20_000) -> None:
    """Within five standard deviations; what is impossible never happens."""
    for token, frequency in found.items():
        probability = expected.get(token, 0.0)
        assert abs(frequency - probability) <= 5 * math.sqrt(probability * (1 - probability) / count), token


def normalised(weights: dict[int, float]) -> dict[int, float]:
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def test_sampling_draws_tokens_as_often_as_they_are_likely() -> None:
    assert_frequencies(draw_tokens(sampler(1.0, 0, 1.0, seed=3, device="cpu")), PROBABILITIES)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_raises_probabilities_to_its_inverse(temperature: float) -> None:
    expected = normalised({token: p ** (1 / temperature) for token, p in PROBABILITIES.items()})
    assert_frequencies(draw_tokens(sampler(temperature, 0, 1.0, seed=3, device="cpu")), expected)


@pytest.mark.parametrize(
    ("top_k", "kept"), [(1, [4]), (2, [4, 5]), (3, [4, 5, 6]), (4, [3, 4, 5, 6]), (50, [3, 4, 5, 6])]
)
def test_top_k_draws_among_the_k_likeliest_alone(top_k: int, kept: list[int]) -> None:
    expected = normalised({token: PROBABILITIES[token] for token in kept})
    assert_frequencies(draw_tokens(sampler(1.0, top_k, 1.0, seed=3, device="cpu")), expected)


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.01, [4]), (0.49, [4]), (0.51, [4, 5]), (0.79, [4, 5]), (0.81, [4, 5, 6]), (0.96, [3, 4, 5, 6])],
)
def test_top_p_cuts_the_tail_behind_the_likeliest_words_that_reach_it(top_p: float, kept: list[int]) -> None:
    expected = normalised({token: PROBABILITIES[token] for token in kept})
    assert_frequencies(draw_tokens(sampler(1.0, 0, top_p, seed=3, device="cpu")), expected)


def test_top_p_counts_probabilities_among_the_top_k() -> None:
    # Of the two likeliest the first has 0.5 / 0.8 = 0.625, so it reaches 0.6 by itself.
    assert_frequencies(draw_tokens(sampler(1.0, 2, 0.6, seed=3, device="cpu")), {4: 1.0})


def test_sampled_outputs_come_as_often_as_their_probability_says() -> None:
    decoder, rows, limit = TableDecoder(5), 4000, 2
    (found,) = roll_out(decoder, ["a"], [limit], sampler(1.0, 0, 1.0, 11, "cpu"), alpha=0.6, rows=rows)
    expected: dict[tuple[int, ...], float] = {}
    for length in range(limit + 1):
        for words in itertools.product(WORDS, repeat=length):
            probability = 1.0
            for t, token in enumerate((*words, EOS)):
                exponentials = normalised(
                    {other: math.exp(decoder.logits("a", words[:t])[other]) for other in (EOS, *WORDS)}
                )
                probability *= exponentials[token] if t < limit else 1.0
            expected[words] = probability
    assert sum(expected.values()) == pytest.approx(1)
    for words, probability in expected.items():
        frequency = sum(tuple(hypothesis.tokens) == words for hypothesis in found) / rows
        assert abs(frequency - probability) <= 5 * math.sqrt(probability * (1 - probability) / rows), words


def test_sampled_outputs_carry_the_models_own_probability_and_come_best_first() -> None:
    decoder = TableDecoder(5)
    choose = sampler(0.7, 3, 0.9, seed=1, device="cpu")
    found = roll_out(decoder, ["a", "b"], [6, 4], choose, alpha=0.6, rows=8)
    for name, group in zip("ab", found, strict=True):
        assert len(group) == 8
        for hypothesis in group:
            log_prob = decoder.log_prob(name, hypothesis.tokens)
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-4)
            assert hypothesis.score == pytest.approx(log_prob / penalty(len(hypothesis.tokens) + 1, 0.6), abs=1e-4)
        scores = [hypothesis.score for hypothesis in group]
        assert scores == sorted(scores, reverse=True)


def test_the_same_seed_samples_the_same_outputs_and_another_seed_others() -> None:
    def sample(seed: int) -> list[list[Hypothesis]]:
        config = SearchConfig(sample=True, nbest=4, seed=seed)
        return search(TableDecoder(5, end_bonus=-1.0), list("abc"), [8, 6, 10], config)

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_sampling_among_one_word_is_greedy_search() -> None:
    names, limits = list("abcdef"), [5, 0, 7, 3, 8, 8]
    for seed in range(3):
        decoder = TableDecoder(seed)
        sampled = roll_out(decoder, names, limits, sampler(1.3, 1, 1.0, seed, "cpu"), alpha=0.6, rows=2)
        expected = [greedy_output(decoder, name, limit) for name, limit in zip(names, limits, strict=True)]
        assert [[hypothesis.tokens for hypothesis in group] for group in sampled] == [[e, e] for e in expected]

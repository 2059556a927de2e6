"""IBM model 1 and the log-likelihood ratios, compared with a direct implementation."""

import math
import random
from collections import defaultdict

import numpy as np
import pytest

from transduce.corpora.check import lexicon
from transduce.corpora.check.lexicon import (
    Lexicon,
    TwoFoldLexicon,
    Vocabulary,
    train_model_1,
    unshared_text,
    word_pairs,
    words,
)

HOUSES = [("das haus", "the house"), ("das buch", "the book"), ("ein buch", "a book"), ("ein haus", "a house")] * 3


def model_1(pairs: list[tuple[list[str], list[str]]], rounds: int) -> dict[tuple[str, str], float]:
    """p(target word | source word) as Brown et al. define it, one word at a time."""
    probability: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        for source, target in pairs:
            for t in target:
                total = sum(probability[s, t] for s in source)
                for s in source:
                    counts[s, t] += probability[s, t] / total
        totals: dict[str, float] = defaultdict(float)
        for (s, _), count in counts.items():
            totals[s] += count
        probability = defaultdict(float, {(s, t): count / totals[s] for (s, t), count in counts.items()})
    return probability


def test_learning_is_expectation_maximisation() -> None:
    rng = random.Random(1)
    pairs = [
        ([f"s{n}" for n in rng.choices(range(6), k=rng.randint(1, 5))], [f"t{n}" for n in rng.choices(range(7), k=4)])
        for _ in range(40)
    ]
    sources, targets = [list(side) for side in zip(*pairs, strict=True)]
    src, tgt = Vocabulary(sources, 100), Vocabulary(targets, 100)
    result = train_model_1(word_pairs(src.ids(sources), tgt.ids(targets)), len(src), len(tgt))
    for (s, t), expected in model_1(pairs, lexicon._ROUNDS).items():
        row, column = int(src.ids([[s]])[0][0]), int(tgt.ids([[t]])[0][0])
        assert result[row, column] == pytest.approx(expected, abs=1e-5)


def test_a_ratio_is_the_likelihood_given_the_source_over_that_of_the_unigrams() -> None:
    sources, targets = [[text.split() for text in side] for side in zip(*HOUSES, strict=True)]
    probability = model_1(list(zip(sources, targets, strict=True)), lexicon._ROUNDS)
    expected = 0.0
    for t in ("the", "book"):
        unigram = sum(text.count(t) for text in targets) / sum(map(len, targets))
        given = (probability["ein", t] + probability["haus", t]) / 2
        expected += math.log(0.9 * given / unigram + 0.1)
    (result,) = Lexicon(sources, targets).log_ratios([["ein", "haus"]], [["the", "book", "unheard"]])
    assert result == pytest.approx(expected, abs=1e-4)


def test_pairs_without_known_words_have_a_log_ratio_of_zero() -> None:
    sources, targets = [[text.split() for text in side] for side in zip(*HOUSES, strict=True)]
    lexicon_of_houses = Lexicon(sources, targets)
    assert lexicon_of_houses.log_ratios([["x"], [], ["das"]], [["the"], ["the"], []]).tolist() == [0, 0, 0]
    assert lexicon_of_houses.log_ratios([], []).tolist() == []


def test_a_pair_is_not_scored_by_a_lexicon_learned_from_it() -> None:
    """A lexicon learned from all pairs would take words that occur together in only one pair for translations."""
    rng = random.Random(2)
    sources = [[f"s{n}" for n in rng.choices(range(300), k=6)] for _ in range(1_000)]
    targets = [[word.replace("s", "t") for word in source] for source in sources]
    wrong = range(0, 1_000, 10)
    for n in wrong:
        targets[n] = targets[(n + 1) % 1_000]
    ratios = TwoFoldLexicon(np.arange(1_000), sources, targets).log_ratios(np.arange(1_000), sources, targets)
    is_wrong = np.isin(np.arange(1_000), wrong)
    assert (ratios[is_wrong] < lexicon.UNRELATED).mean() > 0.9
    assert not (ratios[~is_wrong] < lexicon.UNRELATED).any()


def test_words_are_runs_of_letters_or_single_characters_of_scripts_without_spaces() -> None:
    assert words("Don't PANIC: 42 cafés!") == ["don", "t", "panic", "42", "cafés"]
    assert words("東京 Tower へ") == ["東", "京", "tower", "へ"]
    assert words("हिन्दी") == ["हिन्दी"]


def test_words_on_both_sides_are_not_in_the_unshared_text() -> None:
    assert unshared_text(["tom", "lives", "in", "rome"], ["tom", "wohnt", "in", "rom"]) == "lives rome"
    assert unshared_text(["same"], ["same"]) == ""

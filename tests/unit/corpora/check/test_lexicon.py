"""IBM model 1 and what follows from it, against the model written out."""

import math
import random
from collections import defaultdict

import numpy as np
import pytest

from transduce.corpora.check import lexicon
from transduce.corpora.check.lexicon import HalvedLexicon, Lexicon, lay_out, learn
from transduce.corpora.check.words import Vocabulary, own_text, words

HOUSES = [("das haus", "the house"), ("das buch", "the book"), ("ein buch", "a book"), ("ein haus", "a house")] * 3


def model_1(pairs: list[tuple[list[str], list[str]]], rounds: int) -> dict[tuple[str, str], float]:
    """p(target word | source word) as Brown et al. define it, one word at a time."""
    chance: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        for source, target in pairs:
            for t in target:
                total = sum(chance[s, t] for s in source)
                for s in source:
                    counts[s, t] += chance[s, t] / total
        totals: dict[str, float] = defaultdict(float)
        for (s, _), count in counts.items():
            totals[s] += count
        chance = defaultdict(float, {(s, t): count / totals[s] for (s, t), count in counts.items()})
    return chance


def test_learning_is_expectation_maximisation() -> None:
    chance = random.Random(1)
    pairs = [
        (
            [f"s{n}" for n in chance.choices(range(6), k=chance.randint(1, 5))],
            [f"t{n}" for n in chance.choices(range(7), k=4)],
        )
        for _ in range(40)
    ]
    sources, targets = [list(side) for side in zip(*pairs, strict=True)]
    src, tgt = Vocabulary(sources, 100), Vocabulary(targets, 100)
    found = learn(lay_out(src.numbers(sources), tgt.numbers(targets)), len(src), len(tgt))
    for (s, t), expected in model_1(pairs, lexicon._ROUNDS).items():
        row, column = int(src.numbers([[s]])[0][0]), int(tgt.numbers([[t]])[0][0])
        assert found[row, column] == pytest.approx(expected, abs=1e-5)


def test_a_gain_is_the_likelihood_given_the_source_over_that_of_the_words_alone() -> None:
    sources, targets = [[text.split() for text in side] for side in zip(*HOUSES, strict=True)]
    chance = model_1(list(zip(sources, targets, strict=True)), lexicon._ROUNDS)
    expected = 0.0
    for t in ("the", "book"):
        alone = sum(text.count(t) for text in targets) / sum(map(len, targets))
        given = (chance["ein", t] + chance["haus", t]) / 2
        expected += math.log(0.9 * given / alone + 0.1)
    (found,) = Lexicon(sources, targets).log_gains([["ein", "haus"]], [["the", "book", "unheard"]])
    assert found == pytest.approx(expected, abs=1e-4)


def test_pairs_without_known_words_gain_nothing() -> None:
    sources, targets = [[text.split() for text in side] for side in zip(*HOUSES, strict=True)]
    judge = Lexicon(sources, targets)
    assert judge.log_gains([["x"], [], ["das"]], [["the"], ["the"], []]).tolist() == [0, 0, 0]
    assert judge.log_gains([], []).tolist() == []


def test_no_pair_speaks_for_itself() -> None:
    """Words that stand together in one pair alone are not taken for translations, as they are by a whole lexicon."""
    chance = random.Random(2)
    sources = [[f"s{n}" for n in chance.choices(range(300), k=6)] for _ in range(1_000)]
    targets = [[word.replace("s", "t") for word in source] for source in sources]
    wrong = range(0, 1_000, 10)
    for n in wrong:
        targets[n] = targets[(n + 1) % 1_000]
    gains = HalvedLexicon(np.arange(1_000), sources, targets).log_gains(np.arange(1_000), sources, targets)
    is_wrong = np.isin(np.arange(1_000), wrong)
    assert (gains[is_wrong] < lexicon.UNRELATED).mean() > 0.9
    assert not (gains[~is_wrong] < lexicon.UNRELATED).any()


def test_words_are_runs_of_letters_and_single_characters_where_no_spaces_are_written() -> None:
    assert words("Don't PANIC: 42 cafés!") == ["don", "t", "panic", "42", "cafés"]
    assert words("東京 Tower へ") == ["東", "京", "tower", "へ"]
    assert words("हिन्दी") == ["हिन्दी"]


def test_names_are_not_a_sides_own_text() -> None:
    assert own_text(["tom", "lives", "in", "rome"], ["tom", "wohnt", "in", "rom"]) == "lives rome"
    assert own_text(["same"], ["same"]) == ""

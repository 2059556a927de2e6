"""Language identification by character trigrams."""

import math
from collections import Counter

import pytest

from transduce.corpora.check import language
from transduce.corpora.check.language import Alphabet, LanguageDetector, LanguageModel

ENGLISH = ["the old man sees a red house by the sea", "she has never been so happy in this town"] * 30
GERMAN = ["der alte mann sieht ein rotes haus am meer", "sie war in dieser stadt noch nie so froh"] * 30
LATIN = "quousque tandem abutere catilina patientia nostra"


def test_the_likelihood_is_that_of_a_smoothed_trigram_model() -> None:
    sample = ["abab", "abba"]
    model = LanguageModel(Alphabet(sample), sample)
    started = ["\n\n" + text for text in sample]
    three = Counter(text[n : n + 3] for text in started for n in range(len(text) - 2))
    two, one = Counter[str](), Counter[str]()
    for trigram, count in three.items():
        two[trigram[1:]] += count
        one[trigram[2:]] += count

    def p1(a: str) -> float:
        return (one[a] + 1) / (sum(one.values()) + 128)

    def p2(a: str, b: str) -> float:
        return (two[a + b] + 5 * p1(b)) / (sum(count for pair, count in two.items() if pair[0] == a) + 5)

    def p3(trigram: str) -> float:
        seen = sum(count for other, count in three.items() if other[:2] == trigram[:2])
        return (three[trigram] + 5 * p2(trigram[1], trigram[2])) / (seen + 5)

    expected = sum(math.log(p3("\n\nabb"[n : n + 3])) for n in range(3))
    result = model.log_likelihood(Alphabet(sample).trigrams(["abb", "ab"]))
    assert result[0] == pytest.approx(expected, abs=1e-4)


def test_texts_in_the_other_language_or_in_neither_are_detected() -> None:
    sources = [ENGLISH[0], GERMAN[0], ENGLISH[1], LATIN, GERMAN[1]]
    targets = [GERMAN[0], GERMAN[1], LATIN, GERMAN[0], ENGLISH[1]]
    wrong = LanguageDetector(ENGLISH, GERMAN).detect(sources, targets)
    assert wrong.src_is_tgt.tolist() == [False, True, False, False, True]
    assert wrong.tgt_is_src.tolist() == [False, False, False, False, True]
    assert wrong.src_is_foreign.tolist() == [False, False, False, True, False]
    assert wrong.tgt_is_foreign.tolist() == [False, False, True, False, False]


def test_another_script_is_foreign() -> None:
    wrong = LanguageDetector(ENGLISH, GERMAN).detect(
        [ENGLISH[0]] * 2, ["мы никогда не были так счастливы", "我们从来没有这么快乐过在这个城市里面的时候真的"]
    )
    assert wrong.tgt_is_foreign.all()


def test_an_empty_or_very_short_text_is_not_classified() -> None:
    assert not LanguageDetector(ENGLISH, GERMAN).detect(["", "ok"], ["", ""]).any().any()


def test_if_both_sides_are_in_one_language_no_side_is_in_the_other() -> None:
    wrong = LanguageDetector(ENGLISH, ENGLISH).detect(ENGLISH[:2], ENGLISH[:2])
    assert not (wrong.src_is_tgt | wrong.tgt_is_src).any()


def test_only_the_beginning_of_a_long_text_is_used() -> None:
    trigrams = Alphabet(ENGLISH).trigrams(["a" * 100_000, "b"])
    assert trigrams.lengths.tolist() == [language._MAX_CHARACTERS, 1]

"""Language identification by character trigrams."""

import math
from collections import Counter

import numpy as np
import pytest

from transduce.corpora.check.language import Alphabet, LanguageDetector, SideScripts, TrigramModel, WrongLanguage
from transduce.corpora.check.lexicon import unshared_text, words


def both_halves(first: str, second: str) -> list[str]:
    """A sample in which texts with odd and with even numbers are the same."""
    return [first, second, second, first] * 15


ENGLISH = both_halves("the old man sees a red house by the sea", "she has never been so happy in this town")
GERMAN = both_halves("der alte mann sieht ein rotes haus am meer", "sie war in dieser stadt noch nie so froh")
RUSSIAN = both_halves("старик видит красный дом у моря", "она никогда не была так счастлива")
LATIN = "quousque tandem abutere catilina patientia nostra"


def detect(detector: LanguageDetector, sources: list[str], targets: list[str]) -> WrongLanguage:
    return detector.detect(np.arange(len(sources)), sources, targets)


def detector(sources: list[str], targets: list[str]) -> LanguageDetector:
    return LanguageDetector(np.arange(len(sources)), sources, targets)


def test_the_likelihood_is_that_of_a_trigram_model_of_the_other_half_with_witten_bell_smoothing() -> None:
    sample = ["abab", "abba", "abab", "abba"]
    alphabet = Alphabet(sample)
    model = TrigramModel(alphabet, np.array([0, 1, 2, 3]), sample)
    for number, half in ((0, "abba"), (1, "abab")):
        started = ["\n\n" + half] * 2
        three = Counter(text[n : n + 3] for text in started for n in range(len(text) - 2))
        two, one = Counter[str](), Counter[str]()
        for trigram, count in three.items():
            two[trigram[1:]] += count
            one[trigram[2:]] += count

        def p1(a: str, one: Counter[str] = one) -> float:
            return (one[a] + 1) / (one.total() + 128)

        def smoothed(counts: Counter[str], gram: str, shorter: float) -> float:
            same = {other: count for other, count in counts.items() if other[:-1] == gram[:-1]}
            kinds = max(len(same), 1)
            return (counts[gram] + kinds * shorter) / (sum(same.values()) + kinds)

        text = "\n\nabb"
        expected = sum(
            math.log(smoothed(three, text[n : n + 3], smoothed(two, text[n + 1 : n + 3], p1(text[n + 2]))))
            for n in range(3)
        )
        result = model.log_likelihood(np.array([number]), alphabet.trigrams(["abb"]))
        assert result[0] == pytest.approx(expected, abs=1e-4)


def test_texts_in_the_other_language_or_in_neither_are_detected() -> None:
    sources = [ENGLISH[0], GERMAN[0], ENGLISH[1], LATIN, GERMAN[1]]
    targets = [GERMAN[0], GERMAN[1], LATIN, GERMAN[0], ENGLISH[1]]
    wrong = detect(detector(ENGLISH, GERMAN), sources, targets)
    assert wrong.src_is_tgt.tolist() == [False, True, False, False, True]
    assert wrong.tgt_is_src.tolist() == [False, False, False, False, True]
    assert wrong.src_is_foreign.tolist() == [False, False, False, True, False]
    assert wrong.tgt_is_foreign.tolist() == [False, False, True, False, False]


def test_another_script_is_foreign() -> None:
    others = ["мы никогда не были так счастливы", "我们从来没有这么快乐过", "קטן מאוד והוא"]
    wrong = detect(detector(ENGLISH, GERMAN), [ENGLISH[0]] * 3, others)
    assert wrong.tgt_is_foreign.all()


def test_the_script_of_the_other_side_is_its_language_if_its_words_are() -> None:
    wrong = detect(detector(ENGLISH, RUSSIAN), [RUSSIAN[0], ENGLISH[0], ENGLISH[0]], [ENGLISH[1], GERMAN[0], LATIN])
    assert wrong.src_is_tgt.tolist() == [True, False, False]
    assert wrong.tgt_is_src.tolist()[0]
    assert (wrong.tgt_is_src | wrong.tgt_is_foreign).all()
    assert wrong.tgt_is_foreign.tolist()[2]


def test_a_script_that_is_frequent_on_both_sides_tells_nothing() -> None:
    mixed = [*ENGLISH, *RUSSIAN]
    assert not SideScripts(mixed).wrong(mixed, SideScripts(mixed))[0].any()
    assert not SideScripts(mixed).wrong(mixed, SideScripts(ENGLISH))[1].any()


def test_names_in_another_script_are_no_other_language() -> None:
    chinese, english = SideScripts(["我们从来没有这么快乐过"] * 9), SideScripts(ENGLISH)
    texts = ["我们用microsoft打开", "我们从来没有这么快乐过", "ok", "microsoft office word"]
    assert chinese.wrong(texts, english)[0].tolist() == [False, False, False, True]


def test_words_that_sides_share_and_numbers_are_left_out() -> None:
    assert unshared_text(words("Tom has 1,000 cats"), words("Tom hat 1000 Katzen")) == "has cats"
    assert unshared_text(words("टॉम के पास १००० बिल्लियाँ हैं"), words("Tom has cats")) == "टॉम के पास बिल्लियाँ हैं"


def test_an_empty_or_very_short_text_is_not_classified() -> None:
    assert not detect(detector(ENGLISH, GERMAN), ["", "ok"], ["", ""]).any().any()


def test_if_both_sides_are_in_one_language_no_side_is_in_the_other() -> None:
    wrong = detect(detector(ENGLISH, ENGLISH), ENGLISH[:2], ENGLISH[:2])
    assert not (wrong.src_is_tgt | wrong.tgt_is_src).any()


def test_only_the_beginning_of_a_long_text_is_used() -> None:
    trigrams = Alphabet(ENGLISH).trigrams(["a" * 100_000, "b"])
    assert trigrams.lengths.tolist() == [1000, 1]

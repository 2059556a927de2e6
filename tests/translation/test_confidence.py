"""Confidence: statistics and features against their definitions, the fit, and what is read from a card."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import small_model

from transduce.data.batch import Batch
from transduce.errors import DataError, ModelError
from transduce.files.languages import language_of_name
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.forced_decoding import TokenStatistics
from transduce.models.likelihood import ModuleReader, cross_attention
from transduce.search.decoder import Hypothesis
from transduce.search.engine import search_all
from transduce.tokenizers.tokenizer import BOS, EOS, Tokenizer
from transduce.translation.calibration import MIN_PAIRS, decile_error, fit, fit_calibration, human_agreement, spearman
from transduce.translation.confidence import (
    ANY,
    FEATURES,
    Calibration,
    observe,
    output_features,
    read_calibrations,
    uncovered_words,
    word_probabilities,
)
from transduce.translation.stages.protect import Protection
from transduce.translation.translation import Translation, join
from transduce.translation.translator import Translator

CALIBRATION = Calibration((-1.0, 1.0, 0.5, 0.5), (1.0, 1.0, 0.1, 0.1), (0.05, -0.05, 0.05, 0.01), 0.6)
TABLE = CALIBRATION.to_table()


@pytest.fixture
def make(untrained_model: EncoderDecoder, toy_tokenizer: Tokenizer) -> Callable[..., Translator]:
    def make(**settings: Any) -> Translator:
        translator = Translator(untrained_model, toy_tokenizer, **{"calibrations": {ANY: CALIBRATION}, **settings})
        translator.config = replace(translator.config, max_extra=4)
        return translator

    return make


def statistics(log_probs: list[float], entropies: list[float] | None = None) -> TokenStatistics:
    columns = (log_probs, entropies or [-value for value in log_probs], [0.5] * len(log_probs))
    return TokenStatistics(*columns)


@torch.inference_mode()
def test_statistics_are_those_of_the_distribution_at_each_token() -> None:
    model = small_model().eval()
    pairs = [([5, 6, 7], [8, 9]), ([5], []), ([10, 11], [12, 13, 14, 15])]
    for (source, target), own in zip(pairs, ModuleReader(model).token_statistics(pairs), strict=True):
        hidden = model(Batch.of(src=[[*source, EOS]], tgt=[[BOS, *target]]))
        p_TV = (hidden @ model.output_weight_VD.T).softmax(-1)
        expected = p_TV[range(len(target) + 1), [*target, EOS]].log()
        torch.testing.assert_close(torch.tensor(own.log_prob_T), expected)
        torch.testing.assert_close(torch.tensor(own.entropy_T), torch.distributions.Categorical(p_TV).entropy())
        weights_TS = cross_attention(model, [source], [target])[0]
        torch.testing.assert_close(torch.tensor(own.attention_T), weights_TS.amax(-1))


def test_features_are_means_and_the_expected_overlap_of_ngrams() -> None:
    text, ends = "ab cd", [2, 4, 5]  # tokens "ab", " c" and "d"
    entropies = [0.1, 0.7, 0.4, 0.2]
    right = [math.exp(-value) for value in entropies]
    owners = [0, 0, 1, 2]  # of the characters a, b, c and d
    shares = []
    for n in range(1, 5):  # no longer n-gram fits
        spans = [owners[start : start + n] for start in range(5 - n)]
        shares.append(np.mean([math.prod(right[token] for token in set(span)) for span in spans]))
    features = output_features(statistics([-0.5, -0.1, -0.2, -0.4], entropies), ends, text)
    assert features == pytest.approx([-0.3, 0.35, np.mean(shares), 0.5])


def test_an_output_without_text_has_features() -> None:
    assert output_features(statistics([-2.0]), [], "") == pytest.approx([-2.0, 2.0, math.exp(-2), 0.5])


@pytest.mark.parametrize(
    ("text", "ends", "tokens"),
    [
        ("Ein Hund", [3, 8], [[0], [1]]),  # "Ein", " Hund"
        ("Ein Hund", [3, 4, 6, 8], [[0], [2, 3]]),  # the space is a token
        ("Ein Hund.", [2, 6, 9], [[0, 1], [1, 2]]),  # "n H" belongs to both words
        ("a 汉", [1, 2, 2, 2, 3], [[0], [2, 3, 4]]),  # three bytes, of which the last completes the character
        ("", [], []),
        ("  ", [1, 2], []),
    ],
)
def test_the_probability_of_a_word_is_the_product_over_its_tokens(
    text: str, ends: list[int], tokens: list[list[int]]
) -> None:
    log_probs = [-0.1 * 2**n for n in range(len(ends))] + [-9.0]  # the end marker belongs to no word
    expected = [math.exp(sum(log_probs[token] for token in own)) for own in tokens]
    assert word_probabilities(log_probs, ends, text) == pytest.approx(expected)


def test_confidence_does_not_change_translations(make: Callable[..., Translator]) -> None:
    texts = ["ba be", "gugu dada bibo baba", "", "汉 😀"]
    translator = make()
    plain = translator.hypotheses(texts, nbest=3)
    with_confidence = translator.hypotheses(texts, nbest=3, confidence=True)
    unasked = [
        [replace(output, confidence=None, word_confidences=None, uncovered=None) for output in best]
        for best in with_confidence
    ]
    assert unasked == plain
    assert plain[2] == with_confidence[2] == [Translation("", 0.0, 0.0, [])]
    for one in (one for best in (*with_confidence[:2], with_confidence[3]) for one in best):
        assert one.confidence is not None
        assert one.word_confidences is not None
        assert 0 <= one.confidence <= 1
        assert len(one.word_confidences) == len(one.text.split())
        assert all(0 <= word <= 1 for word in one.word_confidences)
    assert len({one.confidence for best in with_confidence for one in best}) > 5


def test_confidence_is_that_of_the_forced_output(make: Callable[..., Translator]) -> None:
    translator = make()
    parts = translator.segments("ba be gugu")
    results = search_all(translator.engine, parts, translator.config)
    ((best,),) = results
    (evidence,) = observe(translator.reader, translator.tokenizer, parts, [best])
    assert evidence.features[FEATURES.index("log_prob")] == pytest.approx(best.log_prob / (len(best.tokens) + 1))
    (translations,) = translator.hypotheses(["ba be gugu"], confidence=True)
    assert translations[0].confidence == CALIBRATION.confidence(evidence.features)
    assert translations[0].word_confidences == evidence.words


def test_a_text_in_parts_has_the_mean_of_its_parts(make: Callable[..., Translator]) -> None:
    translator = make(by_sentence=True)
    sentences = ["Ba be.", "Gugu dada bibo!"]
    parts = [translator.hypotheses([sentence], confidence=True)[0][0] for sentence in sentences]
    whole = translator.hypotheses([" ".join(sentences)], confidence=True)[0][0]
    weights = [len(part.tokens) + 1 for part in parts]
    assert whole.confidence == pytest.approx(np.average([part.confidence for part in parts], weights=weights))
    assert whole.word_confidences == pytest.approx([*parts[0].word_confidences, *parts[1].word_confidences])


def test_parts_that_are_joined_without_a_space_share_a_word() -> None:
    first = Translation("甲乙。", 0.0, 0.0, ["x"], confidence=0.8, word_confidences=[0.5])
    second = Translation("丙 丁。", 0.0, 0.0, ["x", "y"], confidence=0.5, word_confidences=[0.4, 0.9])
    joined = join("甲乙。丙 丁。", [], [first, second])
    assert joined.word_confidences == pytest.approx([0.2, 0.9])
    assert joined.confidence == pytest.approx((0.8 * 2 + 0.5 * 3) / 5)
    assert (
        join("甲乙。丙 丁。", [], [first, replace(second, confidence=None, word_confidences=None)]).confidence is None
    )


def test_a_protected_text_is_its_own_translation_and_others_keep_their_place(make: Callable[..., Translator]) -> None:
    translator = make(protection=Protection(), uses_slots=True)
    texts = ["mail@example.org", "ba be", "gugu dada bibo baba"]
    together = translator.hypotheses(texts, confidence=True)
    assert [best[0].text for best in together] == [translator.translate(text) for text in texts]
    assert (together[0][0].confidence, together[0][0].word_confidences) == (1.0, [1.0])


def test_words_without_a_translation_are_found() -> None:
    translator = Translator.load()
    source = "The old teacher praised the beautiful museum in the evening."
    segment = translator.whole(source, to="de")
    outputs = [
        Hypothesis(translator.tokenizer.target.encode(output), 0.0, 0.0)
        for output in (
            "Der alte Lehrer lobte am Abend das schöne Museum.",
            "Der alte Lehrer lobte am Abend das Museum.",
            "Der Lehrer lobte das schöne Museum.",
        )
    ]
    tested = uncovered_words(translator.reader, translator.tokenizer, [segment] * 3, outputs, [("en", "de")])
    assert [*tested] == [[], ["beautiful"], ["evening"]]


def test_what_is_copied_is_not_missing() -> None:
    (best,) = Translator.load().hypotheses(["Send it to anna@example.org quickly.", "2)"], to="de", confidence=True)[0]
    assert best.uncovered == []


@pytest.mark.parametrize("settings", [{}, {"tagged": True}])
def test_without_calibration_confidence_is_refused(make: Callable[..., Translator], settings: dict[str, Any]) -> None:
    translator = make(calibrations={}, **settings)
    with pytest.raises(ModelError, match="transduce calibrate -m MODEL --test"):
        translator.hypotheses(["ba be"], to=None, confidence=True)
    translator.tagged = True
    with pytest.raises(ModelError, match=r"to fr is not calibrated.*--to fr"):
        translator.calibration("fr")


def test_the_fit_recovers_a_linear_relation() -> None:
    chance = np.random.default_rng(1)
    features = chance.normal(size=(4000, len(FEATURES))) * [1, 2, 0.1, 0.5] + [-1, 1, 0.5, 0.5]
    features[:, 3] = 0.25  # constant, as in models without cross-attention
    chrf = np.clip(0.5 + 0.08 * (features[:, 0] + 1) - 0.03 * (features[:, 1] - 1), 0, 1)
    calibration = fit(features, chrf + chance.normal(scale=0.05, size=4000))
    confidence = np.array([calibration.confidence(own) for own in features])
    assert np.abs(confidence - chrf).mean() < 0.005
    assert calibration.weights[3] == 0
    assert spearman(confidence, chrf) > 0.99
    assert decile_error(confidence, chrf) < 0.005


def test_spearman_ranks_ties_by_their_mean() -> None:
    a, b = np.array([1.0, 2.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0, 40.0])
    assert spearman(a, b) == pytest.approx(np.corrcoef([1, 2.5, 2.5, 4], [1, 3, 2, 4])[0, 1])
    assert spearman(a, a**3) == pytest.approx(1)
    assert spearman(a, np.ones(4)) == 0


def test_the_decile_error_is_the_difference_of_means_in_groups() -> None:
    confidence = np.repeat(np.arange(10) / 10, 7)
    assert decile_error(confidence, confidence[::-1].copy()) == pytest.approx(0.5)
    assert decile_error(confidence, confidence + 0.05) == pytest.approx(0.05)


def test_too_few_pairs_are_refused(make: Callable[..., Translator]) -> None:
    with pytest.raises(DataError, match=f"49 pairs are too few to calibrate with; give at least {MIN_PAIRS}"):
        fit_calibration(make(), [("ba", "be")] * 49)


def test_a_calibration_is_read_as_it_was_written() -> None:
    assert Calibration.from_table(TABLE, "here") == CALIBRATION
    assert read_calibrations({"confidence": {"de": TABLE}}, Path("m")) == {"de": CALIBRATION}
    assert read_calibrations({}, Path("m")) == {}


@pytest.mark.parametrize(
    "table",
    [
        None,
        [],
        {},
        {**TABLE, "intercept": "0.5"},
        {**TABLE, "intercept": math.nan},
        {**TABLE, "entropy": [0.1, 0.2]},
        {**TABLE, "entropy": [0.1, 0.0, 0.2]},
        {**TABLE, "entropy": [0.1, 1e-300, 0.2]},
        {**TABLE, "entropy": [0.1, True, 0.2]},
        {**TABLE, "entropy": [math.inf, 1.0, 0.2]},
        {name: value for name, value in TABLE.items() if name != "overlap"},
    ],
)
def test_a_damaged_calibration_is_refused(table: Any) -> None:
    with pytest.raises(ModelError, match=r"^m/model\.json: facts\.confidence\.de is not a calibration"):
        read_calibrations({"confidence": {"de": table}}, Path("m"))


@pytest.mark.parametrize(
    ("name", "language"), [("a/news.de", "de"), ("news.2019.fr.gz", "fr"), ("news.txt", None), ("de", "de")]
)
def test_the_language_of_a_text_by_its_name(name: str, language: str | None) -> None:
    assert language_of_name(name) == language


def test_the_agreement_with_human_scores_is_measured(tmp_path: Path) -> None:
    translator, table = Translator.load(protect=False), tmp_path / "judged.tsv"
    rows = ["The dog sleeps.\tDer Hund schläft.\t1.0", "The dog sleeps.\tGrüne Tabellen an.\t-1.0"] * 25
    table.write_text("\n".join(["original\ttranslation\tz_mean", *rows]) + "\n", encoding="utf-8")
    assert human_agreement(translator, table, "de").startswith("Spearman correlation with human scores 1.000 (")
    table.write_text("source\ttarget\na\tb\n", encoding="utf-8")
    with pytest.raises(DataError, match="rows need the columns original, translation, and z_mean or mean"):
        human_agreement(translator, table, "de")

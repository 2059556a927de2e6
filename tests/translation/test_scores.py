"""Scores are those of sacreBLEU, and a comparison identifies the better system."""

import random

import pytest
import sacrebleu

from transduce.errors import ConfigError, DataError
from transduce.translation.scores import Comparison, bleu, compare, score

REFERENCES = [
    "The cat sat on the mat.",
    "It is raining in Hamburg, again.",
    "“Nobody knows”, she said.",
    "Two dogs run across a green field towards the water.",
    "猫が座った。",
]
HYPOTHESES = [
    "The cat sits on the mat.",
    "It rains again in Hamburg.",
    "“No one knows”, she said.",
    "Two dogs run over a field to the water.",
    "猫が座る。",
]


def test_scores_are_those_of_sacrebleu_itself() -> None:
    scores = {one.metric: one.value for one in score(HYPOTHESES, REFERENCES)}
    assert scores == {
        "BLEU": sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score,
        "chrF2": sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score,
        "TER": sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score,
    }
    assert 0 < scores["BLEU"] < 100


def test_bleu_is_the_score_in_the_list_of_all_metrics() -> None:
    assert bleu(HYPOTHESES, REFERENCES) == score(HYPOTHESES, REFERENCES)[0].value


def test_every_score_has_a_signature() -> None:
    for one in score(HYPOTHESES, REFERENCES):
        assert f"version:{sacrebleu.__version__}" in one.signature
        assert "nrefs:1" in one.signature
    assert "tok:13a" in score(HYPOTHESES, REFERENCES)[0].signature


def test_the_reference_has_the_best_score_and_empty_output_the_worst() -> None:
    assert [one.value for one in score(REFERENCES, REFERENCES)] == pytest.approx([100, 100, 0])
    assert [one.value for one in score([""] * 5, REFERENCES)] == pytest.approx([0, 0, 100])


def test_several_references_are_those_of_sacrebleu() -> None:
    others = [line.replace("the", "a") for line in REFERENCES]
    scores = [one.value for one in score(HYPOTHESES, [REFERENCES, others])]
    assert scores == [
        metric(HYPOTHESES, [REFERENCES, others]).score
        for metric in (sacrebleu.corpus_bleu, sacrebleu.corpus_chrf, sacrebleu.corpus_ter)
    ]
    with pytest.raises(DataError, match="the references have 5, 4 lines"):
        score(HYPOTHESES, [REFERENCES, others[1:]])


@pytest.mark.parametrize("count", [4, 6])
def test_unequal_numbers_of_lines_are_an_error_with_both(count: int) -> None:
    with pytest.raises(DataError, match=rf"{count} lines, the reference 5"):
        score((HYPOTHESES * 2)[:count], REFERENCES)
    with pytest.raises(DataError, match=rf"second has {count} lines, the reference 5"):
        compare({"first": HYPOTHESES, "second": (HYPOTHESES * 2)[:count]}, REFERENCES)


def test_what_is_no_reference_or_tokenizer_is_named() -> None:
    with pytest.raises(DataError, match=r"references\[0\] is not a text, but of the type NoneType"):
        score(["a"], [None])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="there is no tokenizer '13b' of BLEU; use one of auto, 13a, char"):
        score(["a"], ["a"], tokenize="13b")


def test_an_empty_reference_is_an_error() -> None:
    with pytest.raises(DataError, match="the reference is empty"):
        score([], [])


def damaged(lines: list[str], probability: float, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join("oops" if rng.random() < probability else word for word in line.split()) for line in lines]


@pytest.fixture(scope="module")
def comparison() -> dict[tuple[str, str], Comparison]:
    rng = random.Random(1)
    references = [
        " ".join(rng.choices(["ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du"], k=9)) for _ in range(60)
    ]
    systems = {
        "poor": damaged(references, 0.5, seed=2),
        "good": damaged(references, 0.1, seed=3),
        "as poor": damaged(references, 0.5, seed=4),
    }
    comparisons, signatures = compare(systems, references, samples=200)
    assert len(signatures) == 3
    assert len(comparisons) == 9
    return {(one.metric, one.system): one for one in comparisons}


def test_the_first_system_is_the_baseline(comparison: dict[tuple[str, str], Comparison]) -> None:
    for (_, system), one in comparison.items():
        assert (one.p_value is None) == (system == "poor")


def test_a_better_system_is_significantly_better(comparison: dict[tuple[str, str], Comparison]) -> None:
    for metric, sign in (("BLEU", 1), ("chrF2", 1), ("TER", -1)):
        poor, good = comparison[metric, "poor"], comparison[metric, "good"]
        assert sign * good.value > sign * poor.value
        assert good.p_value is not None
        assert good.p_value < 0.01


def test_a_system_of_equal_quality_is_not_significantly_different(
    comparison: dict[tuple[str, str], Comparison],
) -> None:
    for metric in ("BLEU", "chrF2", "TER"):
        equal = comparison[metric, "as poor"]
        assert equal.p_value is not None
        assert equal.p_value > 0.05


def test_the_confidence_interval_contains_the_score(comparison: dict[tuple[str, str], Comparison]) -> None:
    for one in comparison.values():
        assert one.half_width > 0
        assert abs(one.mean - one.value) < one.half_width

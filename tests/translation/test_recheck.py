"""What an output lost (a number, a negation, a name), and what is searched again, with scripted searches."""

from collections.abc import Sequence

import pytest

from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.tokenizers.symbols import SLOTS
from transduce.translation.checks import claims, lost
from transduce.translation.pipeline import Line, Pipeline
from transduce.translation.stages.protect import Protection
from transduce.translation.stages.recheck import Rechecker
from transduce.translation.translator import Translator
from transduce.translation.wording import Wording


@pytest.mark.parametrize(
    ("direction", "source", "output", "expected"),
    [
        ("en-de", "See you at half past seven.", "Bis halb acht.", []),
        ("en-de", "See you at half past seven.", "Bis 19:30 Uhr.", []),
        ("en-de", "See you at half past seven.", "Bis halb sieben.", ["half past seven"]),
        ("en-fr", "See you at a quarter to four.", "À quatre heures moins le quart.", []),
        ("en-fr", "See you at a quarter to four.", "À quatre heures.", ["a quarter to four"]),
        ("de-en", "Um halb elf", "at 2:30", ["halb elf"]),
        ("de-en", "Siebenundneunzig kamen.", "Ninety came.", ["Siebenundneunzig"]),
        ("de-en", "Siebenundneunzig kamen.", "97 came.", []),
        ("en-de", "A two-year plan for both of 3 men", "Ein zweijähriger Plan für beide der drei Männer", []),
        ("en-de", "Two men", "Die Männer", ["Two"]),
        ("en-de", "Half a tablet half an hour before", "Eine halbe Stunde vorher", ["half"]),
        ("en-de", "One and a half spoons", "1,5 Löffel", []),
        ("en-de", "Half of 2.5 mg", "2,5 mg", ["Half"]),
        ("fr-en", "Pendant deux heures et demie", "for two and a half hours", []),
        ("fr-en", "Quatre pour cent", "four percent", []),
        ("en-fr", "1 trillion dollars", "1 milliard de dollars", ["trillion"]),
        ("en-fr", "1 trillion dollars, 3 million euros", "1 billion de dollars, 3 millions d'euros", []),
        ("en-de", "two billion of 5 million", "zwei Billionen von 5 Mio.", ["billion"]),
        ("de-en", "3 Milliarden", "3,000,000,000", []),  # digits are compared by the slots
        ("en-de", "I cant come.", "Ich kann kommen.", ["cant"]),
        ("en-de", "I can't come.", "Ich komme erst morgen.", []),
        ("en-de", "I can come.", "Ich kann nicht kommen.", []),
        ("en-de", "We live in Wollongong.", "Wir leben in Wollong.", ["Wollongong"]),
        ("en-de", "We live in Wollongong.", "Wir leben dort.", []),
        ("en-de", "Wollongong's beach", "Der Strand von Wollong", []),  # it may be any word that starts a sentence
        ("fr-en", "Il vit à Hokkaïdo.", "He lives in Hokkaido.", []),
        ("de-en", "Das ist Wollongong.", "That is Wollong.", []),  # German nouns have capital letters
        ("en-xx", "Two men", "x", []),
        ("xx-de", "Two men", "x", []),
    ],
)
def test_what_an_output_lost(direction: str, source: str, output: str, expected: list[str]) -> None:
    language, target = direction.split("-")
    found = claims(source, language, lambda word: 4)
    lacks = lost(found, source, output, target, lambda word: 4)
    assert [source[slice(*claim.span)] for claim in lacks] == expected


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    directions = [("en", "de"), ("de", "en"), ("fr", "en")]
    settings = {"directions": directions, "tagged": True, "protection": Protection(), "uses_slots": True}
    return Pipeline(Translator.load().tokenizer, 256, **settings)


def rechecked(
    pipeline: Pipeline, target: str, source: str, *rounds: Sequence[str], nbest: int = 1, sample: bool = False
) -> tuple[list[str], list[tuple[str, SearchConfig]]]:
    """The outputs at last, and the sources of the searches; in each round, the search finds the given outputs."""
    (segments,) = pipeline.segments([Line(source, target=target)], Wording())
    encode_all, decode_all = pipeline.tokenizer.target.encode_all, pipeline.tokenizer.target.decode_all
    found = [
        [Hypothesis(tokens, -1.0 - rank, -1.0) for rank, tokens in enumerate(encode_all([*texts], marked=True))]
        for texts in rounds
    ]
    config = SearchConfig(nbest=nbest) if not sample else SearchConfig(nbest=nbest, sample=True)
    searches, jobs = Rechecker(pipeline).searches(segments, [found[0][:nbest]], config), []
    try:
        request = next(searches)
        for results in found[1:]:
            ((segment,), config) = request
            jobs.append((segment.source.characters.partition(" ")[2], config))
            request = searches.send([results])
    except StopIteration as done:
        (best,) = done.value
        return decode_all([hypothesis.tokens for hypothesis in best], marked=True), jobs
    raise AssertionError("more searches than expected")


def test_an_output_of_a_wider_search_replaces_one_that_lost_a_number(pipeline: Pipeline) -> None:
    wrong, right = "Der Drucker im ersten Stock", "Der Drucker im zweiten Stock"
    outputs, jobs = rechecked(pipeline, "de", "The printer on the second floor", [wrong], [wrong, right])
    assert outputs == [right]
    ((source, config),) = jobs
    assert (source, config.beam, config.nbest) == ("The printer on the second floor", 8, 8)


def test_a_complete_output_is_not_searched_again(pipeline: Pipeline) -> None:
    assert rechecked(pipeline, "de", "Two men", ["Zwei Männer"]) == (["Zwei Männer"], [])
    assert rechecked(pipeline, "de", "Two men", ["Die Männer"], sample=True) == (["Die Männer"], [])


def test_a_time_is_put_into_a_slot_if_no_output_has_it(pipeline: Pipeline) -> None:
    slot, wrong = SLOTS[0], "Er kommt um halb zehn."
    outputs, jobs = rechecked(pipeline, "de", "He comes at half past ten.", [wrong], [wrong], [f"Er kommt um {slot}."])
    assert outputs == ["Er kommt um 10:30 Uhr."]
    assert [source for source, _ in jobs] == ["He comes at half past ten.", f"He comes at {slot}."]


def test_what_cannot_be_mended_stays(pipeline: Pipeline) -> None:
    assert rechecked(pipeline, "de", "Two men", ["Die Männer"], ["Männer"])[0] == ["Die Männer"]


def test_other_outputs_keep_their_ranks(pipeline: Pipeline) -> None:
    first = ["Die Männer", "Zwei Männer", "Männer"]
    outputs, _ = rechecked(pipeline, "de", "Two men", first, ["Zwei Männer"], nbest=3)
    assert outputs == ["Zwei Männer", "Männer", "Die Männer"]


def test_the_language_of_the_source_decides(pipeline: Pipeline) -> None:
    # "six" is a number in French and "sechs" in German; both are translated to English.
    outputs, _ = rechecked(pipeline, "en", "Les six hommes dans la maison.", ["The men"], ["The six men"])
    assert outputs == ["The six men"]


def test_the_cost_of_searching_again_is_bounded(pipeline: Pipeline) -> None:
    config, checker = SearchConfig(beam=4), Rechecker(pipeline)
    (two,), (plain,) = pipeline.segments([Line("Two men", target="de"), Line("The men", target="de")], Wording())
    assert checker.repeated_tokens(two, config, 10) == (8 + 4) * 10
    assert checker.repeated_tokens(plain, config, 10) == 0

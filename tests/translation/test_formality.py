"""One form of address within a text, with scripted searches."""

from collections.abc import Sequence

import pytest

from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.tokenizers.symbols import FORMALITY, tag_prefix
from transduce.translation.pipeline import Line, Pipeline
from transduce.translation.stages.address import with_one_form
from transduce.translation.text import Segment
from transduce.translation.translator import Translator
from transduce.translation.wording import Wording

FORMAL, INFORMAL = "Haben Sie Zeit?", "Hast du Zeit?"
NEITHER = "Der Zug kommt."


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    tokenizer = Translator.load().tokenizer
    directions = [("en", "de"), ("en", "fr"), ("de", "en")]
    return Pipeline(tokenizer, 256, by_sentence=True, directions=directions, tagged=True, knows_formality=True)


def translated(
    pipeline: Pipeline, outputs: Sequence[str], target: str = "de", wording: Wording | None = None
) -> tuple[list[str], list[Segment]]:
    """The outputs of the sentences of a text after all have one form, and the segments that are searched again."""
    text = " ".join("Do you have time?" for _ in outputs)
    (segments,) = pipeline.segments([Line(text, target=target)], wording or Wording())
    encode, decode = pipeline.tokenizer.target.encode, pipeline.tokenizer.target.decode
    results = [[Hypothesis(encode(output), -1.0, -1.0)] for output in outputs]
    searches = with_one_form(pipeline, [segments], [results], SearchConfig())
    again: list[Segment] = []
    try:
        jobs, _ = next(searches)
        again = [*jobs]
        forms = [FORMAL if FORMALITY["formal"] in job.source.characters else INFORMAL for job in jobs]
        searches.send([[Hypothesis(encode(form), -1.0, -1.0)] for form in forms])
    except StopIteration as done:
        (found,) = done.value
        return [decode(best[0].tokens) for best in found], again
    raise AssertionError("one search is enough")


@pytest.mark.parametrize("mixed", [[INFORMAL, FORMAL, NEITHER, FORMAL], [INFORMAL, INFORMAL, NEITHER, FORMAL]])
def test_a_text_that_mixes_forms_becomes_formal(pipeline: Pipeline, mixed: list[str]) -> None:
    outputs, again = translated(pipeline, mixed)
    assert outputs == [FORMAL, FORMAL, NEITHER, FORMAL][: len(mixed)]
    searched = f"{tag_prefix('de')}{FORMALITY['formal']} Do you have time?"
    assert [job.source.characters for job in again] == [searched] * mixed.count(INFORMAL)


@pytest.mark.parametrize("outputs", [[FORMAL, NEITHER, FORMAL], [NEITHER], [INFORMAL, INFORMAL]])
def test_a_text_with_one_form_is_not_searched_again(pipeline: Pipeline, outputs: list[str]) -> None:
    assert translated(pipeline, outputs) == (outputs, [])


def test_the_form_that_a_request_names_is_kept(pipeline: Pipeline) -> None:
    assert translated(pipeline, [INFORMAL, FORMAL], wording=Wording(formality="formal")) == ([INFORMAL, FORMAL], [])


def test_a_language_with_one_form_is_left_as_it_is(pipeline: Pipeline) -> None:
    assert translated(pipeline, [INFORMAL, FORMAL], target="en")[1] == []

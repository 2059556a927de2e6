"""One form of address within a text: "du" and "Sie" are not mixed, if the model knows symbols of formality."""

from collections.abc import Sequence

from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.tokenizers.symbols import FORMALITY
from transduce.translation.formality import Formality, form_of_address
from transduce.translation.pipeline import Pipeline, output_text
from transduce.translation.stages.search import Searches
from transduce.translation.text import Segment


def with_one_form(
    pipeline: Pipeline, texts: Sequence[list[Segment]], results: Sequence[list[list[Hypothesis]]], config: SearchConfig
) -> Searches[list[list[list[Hypothesis]]]]:
    """The hypotheses of the segments of each text; if two forms are mixed, the informal ones are searched again.

    To be too polite does less harm than the opposite. A segment whose form is named by the request keeps it.
    """
    again: list[tuple[int, int, Segment]] = []
    for n, (segments, found) in enumerate(zip(texts, results, strict=True)):
        forms = [_form(pipeline, segment, best) for segment, best in zip(segments, found, strict=True)]
        if "formal" in forms:
            others = [place for place, form in enumerate(forms) if form == "informal"]
            again += [(n, place, pipeline.formal(segments[place], "formal")) for place in others]
    again = [item for item in again if len(item[2].tokens) <= pipeline.max_source_length]
    if not again:
        return [*results]
    changed = [[*found] for found in results]
    outputs = yield [segment for _, _, segment in again], config
    for (n, place, _), best in zip(again, outputs, strict=True):
        changed[n][place] = best
    return changed


def _form(pipeline: Pipeline, segment: Segment, best: Sequence[Hypothesis]) -> Formality | None:
    """The form of address of the best output, unless the request names it."""
    if any(symbol in segment.source.characters for symbol in FORMALITY.values()):
        return None
    (marked,) = pipeline.tokenizer.target.decode_all([best[0].tokens], marked=True)
    return form_of_address(output_text(marked, segment), segment.target)

"""Searches again for outputs that lost a number, a time, a negation or the spelling of a name of their source.

The outputs of a wider search are tried first, unless only names are misspelt. If none of them keeps what the best
output lost, times, large numbers and names are put into slots. An output that cannot be mended stays as it is;
`lost_words` reports what it lacks.
"""

from collections.abc import Sequence
from dataclasses import replace

from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.tokenizers.symbols import SLOTS, escape
from transduce.translation.checks import Claim, claims, lost
from transduce.translation.detection import Likelihoods, detected_code
from transduce.translation.pipeline import Pipeline
from transduce.translation.stages.search import Searches
from transduce.translation.text import Required, Segment, Span

_WIDER = 2
"""How many times as many hypotheses the second search has."""


class Rechecker:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline, self._target = pipeline, pipeline.tokenizer.target

    def searches(
        self, segments: Sequence[Segment], results: Sequence[list[Hypothesis]], config: SearchConfig
    ) -> Searches[list[list[Hypothesis]]]:
        """The results; a best output that lost something is replaced by one that did not, if there is one."""
        if config.sample:
            return [*results]
        outputs = self._target.decode_all([best.tokens for best, *_ in results], marked=True) if results else []
        lacking = {i: lacks for i, output in enumerate(outputs) if (lacks := self.lost(segments[i], output))}
        changed = [*results]
        if not lacking:
            return changed
        beam = _WIDER * config.beam
        others = [i for i, lacks in lacking.items() if any(claim.kind != "name" for claim in lacks)]
        found = (yield [segments[i] for i in others], replace(config, beam=beam, nbest=beam)) if others else []
        for i, wider in zip(others, found, strict=True):
            texts = self._target.decode_all([hypothesis.tokens for hypothesis in wider], marked=True)
            complete = (n for n, text in enumerate(texts) if self._keeps(segments[i], text, lacking[i]))
            if (n := next(complete, None)) is not None:
                changed[i] = _with_first(wider[n], results[i])
                del lacking[i]
        jobs = {i: job for i, lacks in lacking.items() if (job := self._with_slots(segments[i], lacks))}
        found = (yield [*jobs.values()], replace(config, nbest=1)) if jobs else []
        for (i, job), (best, *_) in zip(jobs.items(), found, strict=True):
            if hypothesis := self._without_slots(segments[i], job, best, lacking[i]):
                changed[i] = _with_first(hypothesis, results[i])
        return changed

    def lost_words(self, segment: Segment, hypothesis: Hypothesis) -> list[str]:
        """The words of the source whose number, negation or spelling an output lacks."""
        (output,) = self._target.decode_all([hypothesis.tokens], marked=True)
        return [segment.source.characters[slice(*claim.span)] for claim in self.lost(segment, output)]

    def repeated_tokens(self, segment: Segment, config: SearchConfig, limit: int) -> int:
        """Upper bound on the tokens of the searches for a segment, if its outputs have at most `limit` tokens."""
        stated = not config.sample and any(self._claims(segment, source) for source in self._sources(segment))
        return (_WIDER + 1) * config.beam * limit if stated else 0

    def lost(self, segment: Segment, output: str) -> list[Claim]:
        """What a marked output of a segment lost."""
        if segment.is_untranslatable:
            return []
        text = segment.source.characters
        by_source = {
            source: lost(self._claims(segment, source), text, output, segment.target, self._tokens)
            for source in self._sources(segment)
        }
        found = [*by_source.values()]
        if len(found) < 2 or all(lacks == found[0] for lacks in found):
            return found[0] if found else []
        likelihoods = Likelihoods(segment.text)
        return by_source[max(by_source, key=lambda source: likelihoods.tempered(detected_code(source)))]

    def _sources(self, segment: Segment) -> list[str]:
        return sorted(self._pipeline.sources.get(segment.target, ())) if segment.target else []

    def _claims(self, segment: Segment, source: str) -> list[Claim]:
        """What a segment states if it is in this language, outside of its required text."""
        text, start = segment.source.characters, segment.context_end
        found = claims(" " * start + text[start:], source, self._tokens)
        if not segment.required:
            return found
        taken = [required.span for required in segment.required]
        return [claim for claim in found if not any(_overlap(claim.span, span) for span in taken)]

    def _tokens(self, word: str) -> int:
        return len(self._pipeline.tokenizer.encode(word))

    def _with_slots(self, segment: Segment, lacks: Sequence[Claim]) -> Segment | None:
        """A job with slots for what was lost, if all of it can be written down and the model has slots."""
        free = [slot for slot in SLOTS if slot not in segment.slots]
        texts = [claim.written(segment.target) for claim in lacks]
        spans = {claim.span for claim in lacks}
        if not (self._pipeline.uses_slots and all(texts) and len(lacks) == len(spans) <= len(free)):
            return None
        added = [Required(text, claim.span, slot=slot) for text, claim, slot in zip(texts, lacks, free, strict=False)]
        edits = [(*required.span, required.slot) for required in added]
        return self._pipeline.rewritten(segment, edits, (*segment.required, *added))

    def _keeps(self, segment: Segment, output: str, lacks: Sequence[Claim]) -> bool:
        """Whether a marked output lost nothing, and has the names that another one lacks."""
        names = (str(claim.value) for claim in lacks if claim.kind == "name")
        return not self.lost(segment, output) and all(name in output for name in names)

    def _without_slots(
        self, segment: Segment, job: Segment, best: Hypothesis, lacks: Sequence[Claim]
    ) -> Hypothesis | None:
        """The output of a job with text in place of the slots that the segment does not have; None if it lost more."""
        (marked,) = self._target.decode_all([best.tokens], marked=True)
        for slot, required in job.slots.items():
            if slot not in segment.slots:
                marked = marked.replace(slot, escape(required.text))
        if not self._keeps(segment, marked, lacks):
            return None
        (tokens,) = self._target.encode_all([marked], marked=True)
        return best._replace(tokens=tokens)


def _with_first(hypothesis: Hypothesis, others: Sequence[Hypothesis]) -> list[Hypothesis]:
    """A hypothesis in place of the best one, and the others as far as they differ from it."""
    rest = [other for other in others[1:] if other.tokens != hypothesis.tokens]
    return [hypothesis, *rest, *others[: len(others) - 1 - len(rest)]]


def _overlap(first: Span, second: Span) -> bool:
    return first.start < second.end and second.start < first.end

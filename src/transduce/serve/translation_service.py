"""Connects HTTP routes with the scheduler: splits texts into jobs, submits them, and joins their outputs.

Each line of a text is translated separately, as everywhere in transduce. A line becomes several jobs if it has several
sentences, or if it is too long for the model.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast

from transduce.deadline import check_deadline
from transduce.errors import DataError
from transduce.files.texts import require_texts
from transduce.search.engine import output_limit
from transduce.search.options import SearchConfig, SearchOptions
from transduce.serve.limits import HttpError, Limits
from transduce.serve.scheduler import JobTranslations, ScheduledRequest, Scheduler
from transduce.serve.served_models import ServedModel
from transduce.serve.workers import Pending, Workers
from transduce.translation.confidence import MOST_TESTED_TOKENS
from transduce.translation.formality import Formality, has_forms_of_address
from transduce.translation.markup import TaggedText
from transduce.translation.stages.repair import repeated_tokens
from transduce.translation.text import Segment
from transduce.translation.translation import Translation, join
from transduce.translation.translator import Confidence, Translator
from transduce.translation.wording import DEFAULT_WORDING, Wording

_LEAST_COST = 1_000
"""Cost of splitting a short text, which is worth a thread."""


@dataclass
class RequestLine:
    """A line of a text of a request."""

    text: int
    """Index of the text in the request."""
    index: int
    """Index of the line in the text."""
    source: str
    """The line as it is written."""
    jobs: range
    """Indices of the jobs of this line; a blank line has none."""
    outputs: dict[int, list[Translation]] = field(default_factory=dict)
    """Outputs of each finished job."""


class SplitTexts:
    """The texts of one request, split into jobs: the parts of each line of each text."""

    def __init__(self, translator: Translator, texts: Iterable[Iterable[tuple[str, Sequence[Segment]]]]) -> None:
        """Each text is a list of lines with their segments."""
        self._translator = translator
        self.jobs: list[Segment] = []
        self.texts: list[list[RequestLine]] = []
        """The lines of each text."""
        for text, lines in enumerate(texts):
            self.texts.append([])
            for index, (line, parts) in enumerate(lines):
                jobs = range(len(self.jobs), len(self.jobs) + len(parts))
                self.texts[-1].append(RequestLine(text, index, line, jobs))
                self.jobs += parts
        self.lines = list(chain.from_iterable(self.texts))
        self._line_of_job = [line for line in self.lines for _ in line.jobs]
        self.cost = 0
        """Number of tokens of the outputs so far: the cost of joining them."""

    def add_outputs(self, job: int, outputs: list[Translation]) -> RequestLine | None:
        """Store the outputs of a job; returns its line if that is complete now."""
        line = self._line_of_job[job]
        line.outputs[job] = outputs
        self.cost += sum(len(output.tokens) for output in outputs)
        return line if len(line.outputs) == len(line.jobs) else None

    def outputs(self, lines: Sequence[RequestLine]) -> list[Translation]:
        """The n-best list of lines that are done; outputs of the same rank are joined, and blank lines are kept.

        A line with fewer outputs than others has its last one in further ranks.
        """
        parts = [[self.jobs[job] for job in line.jobs] for line in lines]
        nbests = [self._nbest(line) for line in lines]
        results = []
        for rank in range(max(map(len, nbests), default=1)):
            chosen = [nbest[min(rank, len(nbest) - 1)] for nbest in nbests]
            text = "\n".join(text for text, _ in chosen)
            outputs = [output for _, outputs in chosen for output in outputs]
            results.append(join(text, [*chain.from_iterable(parts)], outputs))
        return results

    def _nbest(self, line: RequestLine) -> list[tuple[str, list[Translation]]]:
        """The n-best list of a line that is done, with the outputs of its jobs."""
        if not line.jobs:
            return [(line.source, [])]
        outputs = [line.outputs[job] for job in line.jobs]
        joined = self._translator.join_by_rank([self.jobs[job] for job in line.jobs], outputs)
        return [(output.text, list(rank)) for output, rank in zip(joined, zip(*outputs, strict=False), strict=True)]

    def aligned_spans(
        self, lines: Sequence[RequestLine], output: Translation
    ) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Ranges of characters of a text, which is one line, and of an output that are aligned."""
        return self._translator.aligned_spans([self.jobs[job] for line in lines for job in line.jobs], output)

    def aligned_part(self, part: Segment, output: Translation) -> list[tuple[tuple[int, int], tuple[int, int]]] | None:
        """Ranges of characters of a part and of its output that are aligned; None if the output is not aligned."""
        if output.alignment is None:
            return None
        place = part.original.place
        spans = self._translator.aligned_spans([part], output)
        return [((place(start), place(end)), target) for (start, end), target in spans]

    def best_parts(self, line: RequestLine) -> Iterator[tuple[Segment, Translation, str]]:
        """Each part of a line that is done, its best translation, and the text between this and the next one."""
        outputs = [line.outputs[job][0] for job in line.jobs]
        whole = self.outputs([line])[0].text
        spans, end = [], 0
        for output in outputs:
            start = whole.index(output.text, end)
            end = start + len(output.text)
            spans.append((start, end))
        following = [*(start for start, _ in spans[1:]), len(whole)]
        for job, output, (_, end), next_start in zip(line.jobs, outputs, spans, following, strict=False):
            yield self.jobs[job], output, whole[end:next_start]

    def source_tokens(self, lines: Sequence[RequestLine]) -> list[str]:
        """The source tokens that alignments index."""
        return self._translator.source_tokens([self.jobs[job] for line in lines for job in line.jobs])


def split_texts(
    translator: Translator,
    texts: Sequence[str],
    prefix: str = "",
    to: str | None = None,
    wording: Wording = DEFAULT_WORDING,
    protect: bool = True,
) -> SplitTexts:
    def parts(line: str, before: str) -> tuple[str, list[Segment]]:
        check_deadline()
        return line, translator.segments(line, prefix, to, wording, protect=protect, before=before)

    lines = (text.split("\n") for text in texts)
    return SplitTexts(translator, (map(parts, of_text, ["", *of_text]) for of_text in lines))


class TranslationService:
    """Accepts translation requests within the server's limits."""

    def __init__(self, scheduler: Scheduler, limits: Limits, workers: Workers) -> None:
        self.scheduler, self.limits, self.workers = scheduler, limits, workers

    async def accept(
        self,
        model: ServedModel,
        texts: Sequence[str],
        *,
        prefix: str = "",
        to: str | None = None,
        align: bool | Sequence[bool] = False,
        confidence: Confidence = False,
        coverage: bool = False,
        glossary: Mapping[str, str] | None = None,
        formality: Formality | None = None,
        locale: bool = True,
        protect: bool = True,
        **options: Any,
    ) -> "PendingTranslation":
        """Queue the translation of texts, or raise HttpError; options are the fields of SearchConfig.

        `align` requests alignments of all texts, or tells for each text whether to align it.
        """
        config = self._config(model, options)
        self.check_size(texts, [prefix, *chain.from_iterable((glossary or {}).items())])
        self._check_terms(glossary or {})

        def prepare() -> SplitTexts:
            require_texts(texts, "texts")
            model.translator.repairing_engine(config)  # the first use of an engine may import torch
            wording = Wording.of(glossary or None, formality, locale)
            split = split_texts(model.translator, texts, prefix, to, wording, protect)
            if confidence is True and split.jobs:
                model.translator.calibration(split.jobs[0].target)
            self._check(model.translator, config, split, coverage=coverage)
            return split

        with self.scheduler.reserve():
            split = await self.workers.run(max(_LEAST_COST, sum(map(len, texts))), prepare)
            return self._submit(model, config, split, align, confidence, coverage)

    async def accept_tagged(
        self, model: ServedModel, texts: Sequence[TaggedText], to: str | None, **options: Any
    ) -> "PendingTranslation":
        """Queue the translation of texts with tags; only those that have tags are aligned, which takes time."""
        align = [model.translator.any_model.aligns and bool(text.tags) for text in texts]
        return await self.accept(model, [text.text for text in texts], to=to, align=align, **options)

    async def accept_parts(
        self, model: ServedModel, parts: Sequence[Segment], confidence: Confidence = False
    ) -> "PendingTranslation":
        """Queue parts that are prepared already; every part is a text of its own."""
        split = SplitTexts(model.translator, [[(part.text, [part])] for part in parts])
        config = self._config(model, {"nbest": 1})
        self._check(model.translator, config, split)
        with self.scheduler.reserve():
            return self._submit(model, config, split, False, confidence)

    def check_size(self, texts: Sequence[str], others: Sequence[str] = ()) -> None:
        """Raise HttpError if texts, and the other texts of their request, are larger than the limits."""
        characters = sum(map(len, texts)) + sum(map(len, others))
        if characters > self.limits.characters:
            raise HttpError(413, f"{characters:,} characters are more than the {self.limits.characters:,} allowed")
        sentences = sum(text.count("\n") + 1 for text in texts)
        if sentences > self.limits.sentences:
            raise HttpError(413, f"{sentences:,} sentences are more than the {self.limits.sentences:,} allowed")

    def _check_terms(self, glossary: Mapping[str, str]) -> None:
        if len(glossary) > self.limits.terms:
            raise HttpError(413, f"a glossary has at most {self.limits.terms:,} terms, not {len(glossary):,}")
        longest = max(map(len, chain.from_iterable(glossary.items())), default=0)
        if longest > (most := self.limits.term_characters):
            raise HttpError(413, f"a term and its translation have at most {most:,} characters each, not {longest:,}")

    def _config(self, model: ServedModel, options: dict[str, Any]) -> SearchConfig:
        for name in ("nbest", "beam", "max_extra", "max_length"):
            most = getattr(self.limits, name)
            if options.get(name, 0) > most:
                raise HttpError(400, f"{name} must be at most {most}")
        config = model.translator.config.with_options(cast(SearchOptions, options))
        if config.shortlist:
            model.translator.engine_for(config)  # an error if there is none
        return config

    def _check(
        self, translator: Translator, config: SearchConfig, split: SplitTexts, *, coverage: bool = False
    ) -> None:
        """Raise an error if jobs cannot be searched for, or cost too much."""
        limit = translator.max_source_length
        cost = 0
        repeated = {job for line in split.lines if len(line.jobs) > 1 for job in line.jobs}  # by one form of address
        for number, job in enumerate(split.jobs):
            if len(job.prefix) > limit:
                raise DataError(f"the prefix has more than the {limit} tokens the model accepts")
            if job.required_tokens > limit:
                raise DataError(
                    f"the translation of a sentence must contain {job.required_tokens:,} tokens of terms and protected "
                    f"text, more than the {limit} the model accepts; shorten the translations of the terms"
                )
            most = output_limit(job, config, translator.any_model.longest)
            cost += config.rows * most + repeated_tokens(job, config, most)
            cost += translator.rechecker.repeated_tokens(job, config, most)
            if coverage:
                cost += config.nbest * max(most, MOST_TESTED_TOKENS)
            if number in repeated and translator.pipeline.knows_formality and has_forms_of_address(job.target or ""):
                cost += config.rows * most
        if cost > self.limits.output_tokens:
            raise HttpError(
                413,
                f"{len(split.jobs):,} sentences with {config.rows} hypotheses each may need {cost:,} output tokens, "
                f"more than the {self.limits.output_tokens:,} allowed; send less text, or lower beam, max_extra or "
                "max_length",
            )
        for target in {job.target for job in split.jobs}:
            translator.require_shortlist(config, target)

    def _submit(
        self,
        model: ServedModel,
        config: SearchConfig,
        split: SplitTexts,
        align: bool | Sequence[bool],
        confidence: Confidence,
        coverage: bool = False,
    ) -> "PendingTranslation":
        results: Pending[JobTranslations] = Pending(self.limits.seconds, "send less text per request")
        if split.jobs:
            lines = [line for line in split.lines if (align if isinstance(align, bool) else align[line.text])]
            aligned = set(chain.from_iterable(line.jobs for line in lines))
            request = ScheduledRequest(
                model.translator, config, split.jobs, aligned, results.deliver,
                confidence=confidence, coverage=coverage, texts=[line.jobs for line in split.lines],
            )  # fmt: skip
            self.scheduler.submit(request)
            results.cancel_with(lambda: self.scheduler.drop(request))
        return PendingTranslation(split, results)


class PendingTranslation:
    """A request that is queued or running; its unfinished jobs are dropped if the reader of `lines` stops."""

    def __init__(self, split: SplitTexts, results: Pending[JobTranslations]) -> None:
        self.split, self._results = split, results

    async def lines(self) -> AsyncIterator[RequestLine]:
        """Yield lines as they are finished, beginning with empty ones."""
        missing = len(self.split.jobs)
        try:
            for line in self.split.lines:
                if not line.jobs:
                    yield line
            while missing:
                for job, outputs in await self._results.next():
                    missing -= 1
                    if finished := self.split.add_outputs(job, outputs):
                        yield finished
        finally:
            self._results.close()

    async def all(self) -> SplitTexts:
        """Wait for the last line, and return all of them."""
        async for _ in self.lines():
            pass
        return self.split

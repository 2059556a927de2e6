"""Connects HTTP routes with the scheduler: submits texts and returns sentences as they are finished."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive

from transduce.errors import ConfigError, DataError, ModelError
from transduce.search.engine import output_limit
from transduce.search.options import SearchConfig, SearchOptions
from transduce.serve.errors import HttpError, queue_full_error
from transduce.serve.limits import Limits
from transduce.serve.scheduled_request import JobTranslations, ScheduledRequest
from transduce.serve.scheduler import QueueFullError, Scheduler
from transduce.serve.served_models import ServedModel
from transduce.serve.split_texts import Sentence, SplitTexts
from transduce.translation.stages.glossary import Glossary
from transduce.translation.text import Segment
from transduce.translation.translator import Confidence

_LARGE = 2_000
"""Characters of a request above which its texts are split one request at a time."""


class ClientDisconnectedError(Exception):
    """The client has closed its connection."""


class TranslationService:
    """Accepts translation requests within the server's limits."""

    def __init__(self, scheduler: Scheduler, limits: Limits) -> None:
        self.scheduler, self.limits = scheduler, limits
        self._splits_large = asyncio.Lock()

    async def accept(
        self,
        receive: Receive,
        model: ServedModel,
        texts: Sequence[str],
        *,
        prefix: str = "",
        to: str | None = None,
        align: bool | Sequence[bool] = False,
        confidence: Confidence = False,
        glossary: Mapping[str, str] | None = None,
        protect: bool = True,
        **options: Any,
    ) -> "PendingRequest":
        """Queue the translation of texts, or raise HttpError; options are the fields of SearchConfig.

        `align` requests alignments of all texts, or tells for each text whether to align it.
        """
        config = self._config(model, options)
        self.check_size(texts, [prefix, *chain.from_iterable((glossary or {}).items())])
        if glossary and len(glossary) > self.limits.terms:
            raise HttpError(413, f"a glossary has at most {self.limits.terms:,} terms, not {len(glossary):,}")
        try:
            with self.scheduler.reserve():
                terms = Glossary(glossary) if glossary else None
                split = await self._split(model, texts, prefix, to, terms, protect)
                if confidence is True and split.jobs:
                    model.translator.calibration(split.jobs[0].target)
                return self._submit(receive, model, config, split, align, confidence)
        except QueueFullError:
            raise queue_full_error() from None
        except (DataError, ModelError) as error:
            raise HttpError(400, str(error)) from None

    async def _split(self, model: ServedModel, texts: Sequence[str], *options: Any) -> SplitTexts:
        """Split texts in a thread. Threads take turns, so a small request would wait for all large ones at once."""
        async with self._splits_large if sum(map(len, texts)) > _LARGE else nullcontext():
            return await run_in_threadpool(SplitTexts, model.translator, texts, *options)

    def accept_parts(
        self, receive: Receive, model: ServedModel, parts: Sequence[Segment], confidence: Confidence = False
    ) -> "PendingRequest":
        """Queue parts that are prepared already; every part is a text of its own."""
        try:
            with self.scheduler.reserve():
                split = SplitTexts.of_parts(model.translator, parts)
                return self._submit(receive, model, self._config(model, {"nbest": 1}), split, False, confidence)
        except QueueFullError:
            raise queue_full_error() from None

    def _submit(
        self,
        receive: Receive,
        model: ServedModel,
        config: SearchConfig,
        split: SplitTexts,
        align: bool | Sequence[bool],
        confidence: Confidence,
    ) -> "PendingRequest":
        if any(len(job.prefix) > model.translator.max_source_length for job in split.jobs):
            limit = model.translator.max_source_length
            raise HttpError(400, f"the prefix has more than the {limit} tokens the model accepts")
        self._check_cost(model, config, split)
        try:
            for target in {job.target for job in split.jobs}:
                model.translator.require_shortlist(config, target)
        except ConfigError as error:
            raise HttpError(400, str(error)) from None
        pending = PendingRequest(self, receive, split)
        if split.jobs:
            aligned = {
                job
                for sentence in split.sentences
                if (align if isinstance(align, bool) else align[sentence.text])
                for job in sentence.jobs
            }
            request = ScheduledRequest(
                model.translator, config, split.jobs, aligned, pending.deliver, confidence=confidence
            )
            self.scheduler.submit(request)
            pending.watch(request)
        return pending

    def _config(self, model: ServedModel, options: dict[str, Any]) -> SearchConfig:
        for name in ("nbest", "beam", "max_extra", "max_length"):
            most = getattr(self.limits, name)
            if options.get(name, 0) > most:
                raise HttpError(400, f"{name} must be at most {most}")
        try:
            config = model.translator.config.with_options(cast(SearchOptions, options))
            if config.shortlist:
                model.translator.engine_for(config)  # an error if there is none
            return config
        except ConfigError as error:
            raise HttpError(400, str(error)) from None

    def check_size(self, texts: Sequence[str], others: Sequence[str]) -> None:
        """Raise HttpError if texts, and the other texts of their request, are larger than the limits."""
        characters = sum(map(len, texts)) + sum(map(len, others))
        if characters > self.limits.characters:
            raise HttpError(413, f"{characters:,} characters are more than the {self.limits.characters:,} allowed")
        sentences = sum(text.count("\n") + 1 for text in texts)
        if sentences > self.limits.sentences:
            raise HttpError(413, f"{sentences:,} sentences are more than the {self.limits.sentences:,} allowed")

    def _check_cost(self, model: ServedModel, config: SearchConfig, split: SplitTexts) -> None:
        longest = model.translator.any_model.longest
        cost = config.rows * sum(output_limit(job, config, longest) for job in split.jobs)
        if cost > self.limits.output_tokens:
            raise HttpError(
                413,
                f"{len(split.jobs):,} sentences with {config.rows} hypotheses each may need {cost:,} output tokens, "
                f"more than the {self.limits.output_tokens:,} allowed; send less text, or lower beam, max_extra or "
                "max_length",
            )


class PendingRequest:
    """A request that is queued or running. Read `sentences` to the end, or call `close`."""

    def __init__(self, service: TranslationService, receive: Receive, split: SplitTexts) -> None:
        self._service, self._receive, self.split = service, receive, split
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + service.limits.seconds
        self._results: asyncio.Queue[JobTranslations | Exception] = asyncio.Queue()
        self._request: ScheduledRequest | None = None
        self._watcher: asyncio.Task[None] | None = None

    def deliver(self, result: JobTranslations | Exception) -> None:
        """Receive a result from the scheduler's thread."""
        self._loop.call_soon_threadsafe(self._results.put_nowait, result)

    def watch(self, request: ScheduledRequest) -> None:
        """Drop the request as soon as the client disconnects."""
        self._request = request
        self._watcher = asyncio.create_task(self._drop_on_disconnect())

    async def sentences(self) -> AsyncIterator[Sentence]:
        """Yield sentences as they are finished, beginning with empty lines."""
        missing = len(self.split.jobs)
        try:
            for sentence in self.split.sentences:
                if not sentence.jobs:
                    yield sentence
            while missing:
                for job, outputs in await self._next():
                    missing -= 1
                    if finished := self.split.add_outputs(job, outputs):
                        yield finished
            self._request = None
        finally:
            self.close()

    async def all(self) -> SplitTexts:
        """Wait for the last sentence, and return all of them."""
        async for _ in self.sentences():
            pass
        return self.split

    def close(self) -> None:
        """Drop unfinished jobs."""
        if self._watcher:
            self._watcher.cancel()
        self._drop()
        self._request = None

    def _drop(self) -> None:
        if self._request:
            self._service.scheduler.drop(self._request)

    async def _next(self) -> JobTranslations:
        try:
            result = await asyncio.wait_for(self._results.get(), self._deadline - self._loop.time())
        except TimeoutError:
            seconds = self._service.limits.seconds
            raise HttpError(503, f"not finished within {seconds:g} s; send less text per request", 1) from None
        if isinstance(result, Exception):
            raise result
        return result

    async def _drop_on_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._drop()
        self._results.put_nowait(ClientDisconnectedError())

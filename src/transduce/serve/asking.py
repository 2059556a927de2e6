"""Between a request and the scheduler: texts are put in order, outputs come back as they are done."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive

from transduce.errors import ConfigError, DataError
from transduce.search.options import SearchConfig
from transduce.serve.catalogue import ServedModel
from transduce.serve.limits import Limits
from transduce.serve.order import Done, Order
from transduce.serve.passages import Passages, Sentence
from transduce.serve.refusals import Refusal, busy
from transduce.serve.scheduler import QueueFullError, Scheduler


class ClientGoneError(Exception):
    """Nobody waits for an answer any more."""


class Asking:
    """What the routes translate with."""

    def __init__(self, scheduler: Scheduler, limits: Limits) -> None:
        self.scheduler, self.limits = scheduler, limits

    async def accept(
        self,
        receive: Receive,
        model: ServedModel,
        texts: Sequence[str],
        *,
        prefix: str = "",
        align: bool = False,
        **options: Any,
    ) -> "Accepted":
        """Queue the translation of texts, or refuse it; options are SearchConfig's."""
        config = self._config(model, options)
        self._check_size(texts, prefix)
        try:
            with self.scheduler.place_in_queue():
                passages = await run_in_threadpool(Passages, model.translator, texts, prefix)
                return self._submit(receive, model, config, passages, align)
        except QueueFullError:
            raise busy() from None
        except DataError as error:
            raise Refusal(400, str(error)) from None

    def _submit(
        self, receive: Receive, model: ServedModel, config: SearchConfig, passages: Passages, align: bool
    ) -> "Accepted":
        if any(len(job.prefix) > model.translator.max_source_length for job in passages.jobs):
            raise Refusal(
                400, f"the prefix has more than the {model.translator.max_source_length} tokens the model takes"
            )
        accepted = Accepted(self, receive, passages)
        if passages.jobs:
            order = Order(model.translator, config, passages.jobs, align, accepted.deliver)
            self.scheduler.submit(order)
            accepted.follow(order)
        return accepted

    def _config(self, model: ServedModel, options: dict[str, Any]) -> SearchConfig:
        for name in ("nbest", "beam", "max_extra", "max_length"):
            most = getattr(self.limits, name)
            if options.get(name, 0) > most:
                raise Refusal(400, f"{name} must be at most {most}")
        try:
            return replace(model.translator.config, **options)
        except ConfigError as error:
            raise Refusal(400, str(error)) from None

    def _check_size(self, texts: Sequence[str], prefix: str) -> None:
        characters = sum(map(len, texts)) + len(prefix)
        if characters > self.limits.characters:
            raise Refusal(413, f"{characters:,} characters are more than the {self.limits.characters:,} allowed")
        sentences = sum(text.count("\n") + 1 for text in texts)
        if sentences > self.limits.sentences:
            raise Refusal(413, f"{sentences:,} sentences are more than the {self.limits.sentences:,} allowed")


class Accepted:
    """A request in the queue or on the device. `sentences` must be read to its end, or `close` called."""

    def __init__(self, asking: Asking, receive: Receive, passages: Passages) -> None:
        self._asking, self._receive, self.passages = asking, receive, passages
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + asking.limits.seconds
        self._arrivals: asyncio.Queue[Done | Exception] = asyncio.Queue()
        self._order: Order | None = None
        self._watch: asyncio.Task[None] | None = None

    def deliver(self, done: Done | Exception) -> None:
        """Called by the scheduler's thread."""
        self._loop.call_soon_threadsafe(self._arrivals.put_nowait, done)

    def follow(self, order: Order) -> None:
        """From now on, the order is dropped as soon as the client leaves."""
        self._order = order
        self._watch = asyncio.create_task(self._drop_when_gone())

    async def sentences(self) -> AsyncIterator[Sentence]:
        """Sentences as they are done, empty ones first."""
        missing = len(self.passages.jobs)
        try:
            for sentence in self.passages.sentences:
                if not sentence.jobs:
                    yield sentence
            while missing:
                for job, outputs in await self._next():
                    missing -= 1
                    if done := self.passages.put(job, outputs):
                        yield done
            self._order = None
        finally:
            self.close()

    async def all(self) -> Passages:
        """Wait for the last sentence."""
        async for _ in self.sentences():
            pass
        return self.passages

    def close(self) -> None:
        """Let go of what is not done."""
        if self._watch:
            self._watch.cancel()
        if self._order:
            self._asking.scheduler.drop(self._order)
            self._order = None

    async def _next(self) -> Done:
        try:
            arrived = await asyncio.wait_for(self._arrivals.get(), self._deadline - self._loop.time())
        except TimeoutError:
            seconds = self._asking.limits.seconds
            raise Refusal(503, f"not done within {seconds:g} s, so given up; send less at once", 1) from None
        if isinstance(arrived, Exception):
            raise arrived
        return arrived

    async def _drop_when_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._order:
            self._asking.scheduler.drop(self._order)
        self._arrivals.put_nowait(ClientGoneError())

"""Connects the routes of language models with the generation queue."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from starlette.types import Receive

from transduce.serve.errors import HttpError, queue_full_error
from transduce.serve.generation_queue import GenerationJob, GenerationQueue, Result
from transduce.serve.scheduler import QueueFullError
from transduce.serve.translation_service import ClientDisconnectedError

if TYPE_CHECKING:
    from transduce.language_model.generation import GenerationEvent, TextScore


class PendingGeneration:
    """A request that is queued or running."""

    def __init__(self, queue: GenerationQueue, receive: Receive, seconds: float) -> None:
        self._queue, self._receive, self._seconds = queue, receive, seconds
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + seconds
        self._results: asyncio.Queue[Result] = asyncio.Queue()

    def submit(self, results: Iterator["GenerationEvent | list[TextScore]"], tokens: int) -> None:
        """Queue the work, of at most this many tokens, or raise HttpError; it is dropped if the client disconnects."""
        self._job = GenerationJob(
            results, lambda result: self._loop.call_soon_threadsafe(self._results.put_nowait, result), tokens
        )
        try:
            self._queue.submit(self._job)
        except QueueFullError:
            raise queue_full_error() from None
        self._watcher = asyncio.create_task(self._drop_on_disconnect())

    async def results(self) -> AsyncIterator["GenerationEvent | list[TextScore]"]:
        """Yield results as they arrive; the rest is dropped if the reader stops."""
        try:
            while (result := await self._next()) is not None:
                yield result
        finally:
            self._watcher.cancel()
            self._queue.drop(self._job)

    async def _next(self) -> "GenerationEvent | list[TextScore] | None":
        try:
            result = await asyncio.wait_for(self._results.get(), self._deadline - self._loop.time())
        except TimeoutError:
            raise HttpError(503, f"not finished within {self._seconds:g} s; ask for fewer tokens", 1) from None
        if isinstance(result, Exception):
            raise result
        return result

    async def _drop_on_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._queue.drop(self._job)
        self._results.put_nowait(ClientDisconnectedError())

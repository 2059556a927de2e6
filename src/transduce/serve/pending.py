"""The link between a queue's thread, which delivers results, and the coroutine that waits for them."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from starlette.types import Receive

from transduce.serve.limits import ClientDisconnectedError, HttpError

T = TypeVar("T")


class Pending(Generic[T]):
    """The results of work that is queued or running; the work is cancelled if the client disconnects.

    `advice` says in the error message how to stay within the time limit.
    """

    def __init__(self, receive: Receive, seconds: float, advice: str) -> None:
        self._receive, self._seconds, self._advice = receive, seconds, advice
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + seconds
        self._results: asyncio.Queue[T | Exception] = asyncio.Queue()
        self._cancel: Callable[[], None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    def deliver(self, result: T | Exception) -> None:
        """Receive a result; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._results.put_nowait, result)

    def watch(self, cancel: Callable[[], None]) -> None:
        """Call `cancel` when the client disconnects, or when the results are closed."""
        self._cancel = cancel
        self._watcher = asyncio.create_task(self._cancel_on_disconnect())

    async def next(self) -> T:
        """The next result; an error that was delivered is raised, and HttpError 503 after the time limit."""
        try:
            result = await asyncio.wait_for(self._results.get(), self._deadline - self._loop.time())
        except TimeoutError:
            raise HttpError(503, f"not finished within {self._seconds:g} s; {self._advice}", 1) from None
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        """Cancel the work, which has no effect if it is finished."""
        if self._watcher:
            self._watcher.cancel()
        if self._cancel:
            self._cancel()
        self._cancel = None

    async def _cancel_on_disconnect(self) -> None:
        await wait_for_disconnect(self._receive)
        if self._cancel:
            self._cancel()
        self._results.put_nowait(ClientDisconnectedError())


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

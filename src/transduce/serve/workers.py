"""Where the work of requests runs outside of the event loop, and how a request waits for it.

`Workers` are threads for parsing, splitting, joining, inspecting and the like; `Pending` are the results of a queue.
"""

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Generic, ParamSpec, TypeVar

from transduce.deadline import Deadline, OutOfTimeError
from transduce.serve.limits import HttpError

P = ParamSpec("P")
T = TypeVar("T")

_COSTS = (2_000, 40_000, 400_000, math.inf)
"""Highest cost of the work of each thread, in characters; about a tenth of a second, 2 s, 20 s and any time."""
_INLINE = 200
"""Highest cost of work that is not worth a thread."""


@dataclass(eq=False)
class _Work:
    run: Callable[[], Any]
    deadline: Deadline
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Called on the event loop."""
        if self.future.done():
            return
        if error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Lane:
    """A thread that does one thing after the other; a bounded number of things may wait for it."""

    def __init__(self, name: str, max_waiting: int) -> None:
        self._name, self._max_waiting = name, max_waiting
        self._waiting: deque[_Work] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._running: tuple[_Work, float] | None = None

    async def run(self, seconds: float, work: Callable[[], T], objects: float = math.inf) -> T:
        """The result of work; HttpError 503 if it is not there in this time, 429 if too much other work waits.

        If the caller is cancelled, or after the time, the work ends at the next check of its deadline; it fails if it
        makes more objects than these.
        """
        loop = asyncio.get_running_loop()
        deadline = Deadline(seconds, objects)
        task = _Work(work, deadline, loop, loop.create_future())
        with self._changed:
            if len(self._waiting) >= self._max_waiting:
                raise HttpError(429, f"too many {self._name} are waiting; try again in a moment")
            self._waiting.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"transduce-{self._name}", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            async with asyncio.timeout(seconds):
                result: T = await task.future
                return result
        except (TimeoutError, OutOfTimeError):
            raise HttpError(503, f"not finished within {seconds:g} s; send less text per request") from None
        finally:
            deadline.cancel()
            with self._changed:
                if task in self._waiting:
                    self._waiting.remove(task)

    @property
    def overdue_seconds(self) -> float:
        """How long work runs that nobody waits for any more."""
        running = self._running
        return monotonic() - running[1] if running and running[0].future.done() else 0.0

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                task = self._waiting.popleft()
                self._running = task, monotonic()
            result, error = None, None
            try:
                with task.deadline.applied():
                    result = task.run()
            except Exception as raised:
                error = raised
            self._running = None
            try:
                task.loop.call_soon_threadsafe(task.finish, result, error)
            except RuntimeError:  # the event loop is closed
                return
            del task, result, error


class Workers:
    """Lanes for work of different costs."""

    def __init__(self, max_waiting: int, seconds: float) -> None:
        self._seconds = seconds
        self._lanes = {cost: Lane("requests", max_waiting) for cost in _COSTS}

    async def run(self, cost: float, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work of this cost, in characters."""
        if cost <= _INLINE:
            return work(*args, **kwargs)
        return await self.lane(cost).run(self._seconds, lambda: work(*args, **kwargs))

    def lane(self, cost: float) -> Lane:
        return next(lane for most, lane in self._lanes.items() if cost <= most)

    @property
    def overdue_seconds(self) -> float:
        """How long any work runs that nobody waits for any more."""
        return max(lane.overdue_seconds for lane in self._lanes.values())


class Pending(Generic[T]):
    """The results of work in a queue, which is cancelled when the task that waits for them ends.

    `advice` says in the error message how to stay within the time limit.
    """

    def __init__(self, seconds: float, advice: str) -> None:
        self._seconds, self._advice = seconds, advice
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + seconds
        self._results: asyncio.Queue[T | Exception] = asyncio.Queue()
        self._task = asyncio.current_task()
        self._cancel: Callable[[], None] = lambda: None

    def deliver(self, result: T | Exception) -> None:
        """Receive a result; may be called from any thread."""
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._results.put_nowait, result)

    def cancel_with(self, cancel: Callable[[], None]) -> None:
        """Set what cancels the work; it has no effect if the work is finished."""
        self._cancel = cancel
        if self._task:
            self._task.add_done_callback(self.close)

    async def next(self) -> T:
        """The next result; an error that was delivered is raised, and HttpError 503 after the time limit."""
        try:
            async with asyncio.timeout_at(self._deadline):
                result = await self._results.get()
        except TimeoutError:
            raise HttpError(503, f"not finished within {self._seconds:g} s; {self._advice}") from None
        if isinstance(result, Exception):
            raise result
        return result

    def close(self, _: object = None) -> None:
        """Cancel the work."""
        if self._task:
            self._task.remove_done_callback(self.close)
        self._cancel()

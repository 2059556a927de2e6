"""The parts of a streamed completion that are not sent yet; those of a client that reads slowly are merged."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from transduce.serve.completion_schemas import Choice

_MOST_PARTS = 256
"""Parts that wait for the client before others are merged into them."""


def extend_choice(choice: Choice, part: Choice) -> None:
    """Add the next part of an output to it."""
    choice.text += part.text
    choice.finish_reason = part.finish_reason
    if part.logprobs and choice.logprobs:
        for name, values in part.logprobs:
            getattr(choice.logprobs, name).extend(values)


class UnsentParts:
    """Collects parts while the client reads; iterate over them, then call `close`.

    An event for every token takes much more memory than the text. If the client does not keep up, what is in memory is
    therefore about as large as the response without `stream`, and generation does not wait for the client.
    """

    def __init__(self, parts: AsyncIterator[Choice]) -> None:
        self._waiting: deque[Choice] = deque()
        self._newest: dict[int, Choice] = {}
        """The last waiting part of each output."""
        self._error: BaseException | None = None
        self._changed = asyncio.Event()
        self._collector = asyncio.create_task(self._collect(parts))
        self._collector.add_done_callback(self._end)

    async def __aiter__(self) -> AsyncIterator[Choice]:
        while True:
            while self._waiting:
                part = self._waiting.popleft()
                if self._newest[part.index] is part:
                    del self._newest[part.index]
                yield part
            if self._collector.done():
                break
            self._changed.clear()
            await self._changed.wait()
        if self._error:
            raise self._error

    def close(self) -> None:
        """Stop collecting."""
        self._collector.cancel()

    async def _collect(self, parts: AsyncIterator[Choice]) -> None:
        async for part in parts:
            newest = self._newest.get(part.index)
            if newest and len(self._waiting) >= _MOST_PARTS:
                extend_choice(newest, part)
            else:
                self._waiting.append(part)
                self._newest[part.index] = part
            self._changed.set()

    def _end(self, collector: "asyncio.Task[None]") -> None:
        if not collector.cancelled():
            self._error = collector.exception()
        self._changed.set()

"""The server's side of the processes that read and write documents (`documents/worker.py`)."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path

from transduce.documents.worker import HEAD, Fields, message
from transduce.serve.limits import HttpError

_ENDED = "the file could not be read in the memory that is allowed; divide it"


class DocumentProcess:
    """A process that works on one document after the other.

    It is started when it is first needed, and ended when a request is not finished in time or nobody waits for it.
    """

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting, self._waiting = max_waiting, 0
        self._free = asyncio.Lock()
        self._process: Process | None = None

    async def run(self, seconds: float, request: Fields, data: bytes) -> tuple[Fields, bytes]:
        """The response to a request; HttpError if it is an error, is not there in time, or too many others wait."""
        if self._waiting >= self._max_waiting:
            raise HttpError(429, "too many files are waiting; try again in a moment")
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds), self._free:
                response, content = await self._exchange(message({**request, "seconds": seconds}, data))
        except TimeoutError:
            raise HttpError(503, f"not finished within {seconds:g} s; divide the file") from None
        finally:
            self._waiting -= 1
        if "error" in response:
            raise HttpError(response["status"], response["error"])
        return response, content

    async def _exchange(self, request: list[bytes]) -> tuple[Fields, bytes]:
        idle, self._process = self._process, None
        process = idle if idle and idle.returncode is None else await _start()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.writelines(request)
            await process.stdin.drain()
            sizes = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
            response: Fields = json.loads(await process.stdout.readexactly(sizes[0]))
            content = await process.stdout.readexactly(sizes[1])
            self._process = process
            return response, content
        except (ConnectionError, asyncio.IncompleteReadError):
            raise HttpError(413, _ENDED) from None
        finally:
            if self._process is None:
                _end(process)

    async def close(self) -> None:
        if self._process:
            _end(self._process)
            await self._process.wait()
            self._process = None


async def _start() -> Process:
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "transduce.documents.worker", stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip


def _end(process: Process) -> None:
    if process.returncode is None:  # process.kill() may take the exit status, for which asyncio waits, and then warns
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)

"""ASGI middleware for admission control: checks size, host and load of each request, and counts and logs it.

It ends a request whose client has disconnected or whose time is over, by cancelling its task.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serve.limits import HttpError, Limits, QueueFullError, error_body, error_location
from transduce.serve.metrics import ServerMetrics
from transduce.serve.scheduler import Scheduler

KNOWN_PATHS = (
    "/", "/translate", "/v1/translate", "/v1/alternatives", "/v1/translators", "/v1/completions", "/v1/models",
    "/languages", "/detect", "/frontend/settings", "/translate_file", "/suggest", "/v1/documents",
    "/inspect/look", "/inspect/reference", "/inspect/head", "/health", "/ready", "/metrics",
    "/openapi.json",
)  # fmt: skip
"""Paths that metrics and logs name; any other path could contain private data."""
FILE_PATHS = ("/translate_file", "/v1/documents")
"""Paths that receive files, which have limits of their own."""
CLIENT_CLOSED_REQUEST = 499
"""Status in metrics and logs if the client disconnected before the response."""

_MAX_DRAINED_BYTES = 32_000_000
"""Bytes beyond the limit that are read and discarded, so that the client can read the error response."""

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_PORT = re.compile(r":\d*$")

_log = logging.getLogger(__name__)


class ClientDisconnectedError(Exception):
    """The client has closed its connection."""


@dataclass
class ServerState:
    """The requests in flight, and whether the server is shutting down."""

    draining: bool = False
    tasks: "set[asyncio.Task[Any]]" = field(default_factory=set)
    """The tasks of the requests in flight."""

    @property
    def in_flight(self) -> int:
        return len(self.tasks)


class AdmissionMiddleware:
    def __init__(
        self,
        app: ASGIApp,
        scheduler: Scheduler,
        limits: Limits,
        metrics: ServerMetrics,
        state: ServerState,
        hosts: Collection[str] | None = None,
        has_keys: bool = False,
    ) -> None:
        self._app, self._scheduler, self._metrics, self._hosts = app, scheduler, metrics, hosts
        self._has_keys = has_keys
        self.limits, self.state = limits, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        response = _Response(send, scope["path"])
        try:
            await self._handle(scope, receive, response)
        except ClientDisconnectedError:
            response.status = CLIENT_CLOSED_REQUEST
        except TimeoutError:
            message = f"not finished within {self.limits.seconds:g} s"
            await response.send_error(HttpError(503, message))
        except HttpError as error:
            await response.send_error(error)
        except Exception as error:
            _log.error("internal error: %s", error_location(error))
            await response.send_error(HttpError(500, "internal error"))
        path = scope["path"] if scope["path"] in KNOWN_PATHS else "other"
        seconds = time.perf_counter() - start
        self._metrics.count_request(path, response.status, seconds)
        if response.status != 429:  # under overload, logging would cost more than the responses; metrics count them
            _log.info("%s %d %.0f ms", path, response.status, 1000 * seconds)

    async def _handle(self, scope: Scope, receive: Receive, response: "_Response") -> None:
        body = await self._read_body(scope, receive)
        self._check_host(scope)
        if scope["method"] not in _SAFE_METHODS:
            self._check_site(scope)
            if self.state.draining:
                raise HttpError(503, "the server is shutting down", retry_after=5)
            if self._scheduler.full:  # rejected before its body is parsed, which keeps the cost low
                raise QueueFullError
        task = asyncio.current_task()
        assert task
        self.state.tasks.add(task)
        watcher = asyncio.create_task(_cancel_on_disconnect(task, receive, response))
        seconds = self.limits.file_seconds if scope["path"] in FILE_PATHS else self.limits.seconds
        try:
            async with asyncio.timeout(seconds + self.limits.receive_seconds):
                await self._app(scope, _replay(body, receive), response)
        except asyncio.CancelledError:
            if not watcher.done():  # the server ends
                await response.send_error(HttpError(503, "the server is shutting down", retry_after=5))
                raise
            task.uncancel()
            raise ClientDisconnectedError from None
        finally:
            watcher.cancel()
            self.state.tasks.discard(task)

    def _check_site(self, scope: Scope) -> None:
        """Reject forms of other web sites, which browsers send without asking; they do not know the API keys."""
        if self._has_keys:
            return
        site, origin = _header(scope, b"sec-fetch-site"), _header(scope, b"origin")
        is_other = origin.startswith((b"http:", b"https:", b"null")) and origin.split(b"//")[-1] != _header(
            scope, b"host"
        )
        if (site not in (b"same-origin", b"none")) if site else is_other:
            raise HttpError(
                403, "this server accepts no requests of pages of other sites; give it API keys to allow them"
            )

    def _check_host(self, scope: Scope) -> None:
        """Reject other host names. This prevents DNS rebinding."""
        host = _header(scope, b"host").decode("latin-1").lower()
        if self._hosts is not None and host and _PORT.sub("", host) not in self._hosts:
            raise HttpError(421, "this server only accepts requests to localhost; a proxy must send Host: localhost")

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        limit = self.limits.file_bytes if scope["path"] in FILE_PATHS else self.limits.body_bytes
        too_large = HttpError(413, f"the body is larger than the {limit:,} bytes allowed")
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length) > limit + _MAX_DRAINED_BYTES:
            raise too_large
        body, size, more = bytearray(), 0, True
        try:
            async with asyncio.timeout(self.limits.receive_seconds):
                while more and size <= limit + _MAX_DRAINED_BYTES:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnectedError
                    size += len(message.get("body", b""))
                    more = message.get("more_body", False)
                    if size <= limit:
                        body += message.get("body", b"")
        except TimeoutError:
            raise HttpError(408, f"the body did not arrive within {self.limits.receive_seconds:g} s") from None
        if size > limit:
            raise too_large
        return bytes(body)


def _header(scope: Scope, name: bytes) -> bytes:
    """The value of a header, or b""."""
    return next((value for key, value in scope["headers"] if key == name), b"")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that first returns the body that was already read, then the client's next messages."""
    replayed = False

    async def receive_after_body() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_after_body


async def _cancel_on_disconnect(task: "asyncio.Task[Any]", receive: Receive, response: "_Response") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    if not response.is_complete:
        task.cancel()


class _Response:
    """Sends a response, and records its status and whether it is complete."""

    def __init__(self, send: Send, path: str) -> None:
        self._send, self._path, self.status, self.is_complete = send, path, 0, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.is_complete = not message.get("more_body", False)
        await self._send(message)

    async def send_error(self, error: HttpError) -> None:
        """Send an error, unless it is too late for that."""
        if self.status:
            return
        body = json.dumps(error_body(self._path, error.status, error.message)).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
        if error.status in (408, 413):
            headers["connection"] = "close"  # the rest of the body may still arrive
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": error.status, "headers": pairs})
        await self({"type": "http.response.body", "body": body})

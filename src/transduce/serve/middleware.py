"""ASGI middleware for admission control: checks size, host and load of each request, and counts and logs it."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Collection
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serve.limits import ClientDisconnectedError, HttpError, Limits, QueueFullError, error_location
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

_PORT = re.compile(r":\d*$")

_log = logging.getLogger(__name__)


@dataclass
class ServerState:
    """Number of requests in flight, and whether the server is shutting down."""

    draining: bool = False
    in_flight: int = 0


class AdmissionMiddleware:
    def __init__(
        self,
        app: ASGIApp,
        scheduler: Scheduler,
        limits: Limits,
        metrics: ServerMetrics,
        state: ServerState,
        hosts: Collection[str] | None = None,
    ) -> None:
        self._app, self._scheduler, self._metrics, self._hosts = app, scheduler, metrics, hosts
        self.limits, self.state = limits, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._handle(scope, receive, send_and_record)
        except ClientDisconnectedError:
            status = CLIENT_CLOSED_REQUEST
        except TimeoutError:
            if not status:
                message = f"not finished within {self.limits.seconds:g} s"
                await _send_error(send_and_record, HttpError(503, message, retry_after=1))
        except HttpError as error:
            await _send_error(send_and_record, error)
        except Exception as error:
            _log.error("internal error: %s", error_location(error))
            if not status:
                await _send_error(send_and_record, HttpError(500, "internal error"))
        path = scope["path"] if scope["path"] in KNOWN_PATHS else "other"
        seconds = time.perf_counter() - start
        self._metrics.count_request(path, status, seconds)
        if status != 429:  # under overload, logging would cost more than the responses; the metrics count them
            _log.info("%s %d %.0f ms", path, status, 1000 * seconds)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self._read_body(scope, receive)
        self._check_host(scope)
        if scope["method"] == "POST":
            if self.state.draining:
                raise HttpError(503, "the server is shutting down", retry_after=5)
            if self._scheduler.full:  # rejected before its body is parsed, which keeps the cost low
                raise QueueFullError
        self.state.in_flight += 1
        try:
            seconds = self.limits.file_seconds if scope["path"] in FILE_PATHS else self.limits.seconds
            async with asyncio.timeout(seconds + self.limits.receive_seconds):
                await self._app(scope, _replay(body, receive), send)
        finally:
            self.state.in_flight -= 1

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


async def _send_error(send: Send, error: HttpError) -> None:
    body = json.dumps({"error": error.message}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
    if error.status in (408, 413):
        headers["connection"] = "close"  # the rest of the body may still arrive
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})

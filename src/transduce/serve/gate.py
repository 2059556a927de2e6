"""What every request passes first: its size and pace, whether there is room, and what is counted and logged of it."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Collection
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serve.asking import ClientGoneError
from transduce.serve.limits import Limits
from transduce.serve.metrics import Metrics
from transduce.serve.refusals import Refusal, busy, place, stopping
from transduce.serve.scheduler import Scheduler

PATHS = ("/translate", "/v1/translate", "/languages", "/health", "/ready", "/metrics", "/openapi.json")
"""Those that are counted and logged by name; what else clients ask for may hold anything."""
CLIENT_GONE = 499
"""Counted where nobody was left to be answered."""

_DISCARDED = 32_000_000
"""Bytes beyond the limit that are read and thrown away, so that the client has ears for the refusal."""

_PORT = re.compile(r":\d*$")

_log = logging.getLogger(__name__)


@dataclass
class Traffic:
    """Requests under way, and whether new ones are taken."""

    draining: bool = False
    in_flight: int = 0


class Gate:
    """An ASGI application around another."""

    def __init__(
        self,
        app: ASGIApp,
        scheduler: Scheduler,
        limits: Limits,
        metrics: Metrics,
        traffic: Traffic,
        hosts: Collection[str] | None = None,
    ) -> None:
        self._app, self._scheduler, self._metrics, self._hosts = app, scheduler, metrics, hosts
        self.limits, self.traffic = limits, traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._pass(scope, receive, noting)
        except ClientGoneError:
            status = CLIENT_GONE
        except TimeoutError:
            if not status:
                seconds = self.limits.seconds
                await _answer(noting, Refusal(503, f"not done within {seconds:g} s, so given up", retry_after=1))
        except Refusal as refusal:
            await _answer(noting, refusal)
        except Exception as error:
            _log.error("internal error: %s", place(error))
            if not status:
                await _answer(noting, Refusal(500, "internal error"))
        path = scope["path"] if scope["path"] in PATHS else "other"
        seconds = time.perf_counter() - began
        self._metrics.answered(path, status, seconds)
        if status != 429:  # those are counted; under overload, lines would cost more than the refusals
            _log.info("%s %d %.0f ms", path, status, 1000 * seconds)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self._body(scope, receive)
        self._check_host(scope)
        if scope["method"] == "POST":
            if self.traffic.draining:
                raise stopping()
            if self._scheduler.full:  # refused before its body is understood, so that it costs little
                raise busy()
        self.traffic.in_flight += 1
        try:
            async with asyncio.timeout(self.limits.seconds + self.limits.receive_seconds):
                await self._app(scope, _again(body, receive), send)
        finally:
            self.traffic.in_flight -= 1

    def _check_host(self, scope: Scope) -> None:
        """Refuse requests to another name: a page from elsewhere may have let its own name lead here."""
        host = _header(scope, b"host").decode("latin-1").lower()
        if self._hosts is not None and host and _PORT.sub("", host) not in self._hosts:
            raise Refusal(421, "this server answers to localhost alone; a proxy before it has to send Host: localhost")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        most = self.limits.body_bytes
        if _declared(scope) > most + _DISCARDED:
            raise _too_large(most)
        body, size, more = bytearray(), 0, True
        try:
            async with asyncio.timeout(self.limits.receive_seconds):
                while more and size <= most + _DISCARDED:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    size += len(message.get("body", b""))
                    more = message.get("more_body", False)
                    if size <= most:
                        body += message.get("body", b"")
        except TimeoutError:
            raise Refusal(408, f"the body did not arrive within {self.limits.receive_seconds:g} s") from None
        if size > most:
            raise _too_large(most)
        return bytes(body)


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"the body is larger than the {most:,} bytes allowed")


def _declared(scope: Scope) -> int:
    length = _header(scope, b"content-length")
    return int(length) if length.isdigit() else 0


def _header(scope: Scope, wanted: bytes) -> bytes:
    """A header's value, empty where there is none."""
    return next((value for name, value in scope["headers"] if name == wanted), b"")


def _again(body: bytes, receive: Receive) -> Receive:
    """The body that was read, in one piece; then whatever the client does next."""
    read = False

    async def receive_again() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def _answer(send: Send, refusal: Refusal) -> None:
    body = json.dumps({"error": refusal.message}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    if refusal.status in (408, 413):
        headers["connection"] = "close"  # there may be more of the body to come
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})

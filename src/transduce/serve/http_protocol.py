"""The HTTP/1.1 protocol of a connection: uvicorn's, with timeouts for clients, and without upgrades."""

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MAX_HEADER_BYTES = 65_536
_LENGTH_HEADERS = (b"content-length", b"transfer-encoding")


def http_protocol(receive_seconds: float, send_seconds: float) -> type[asyncio.Protocol]:
    """A protocol class that closes a connection if a complete request header does not arrive within this time.

    It also closes one whose client reads nothing of a response for `send_seconds`.
    """
    return type("HttpProtocol", (_HttpProtocol,), {"receive_seconds": receive_seconds, "send_seconds": send_seconds})


class _HttpProtocol(HttpToolsProtocol):
    receive_seconds: float
    send_seconds: float
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    """Bytes received since the last complete request."""
    _send_timer: asyncio.TimerHandle | None = None
    _unsent = 0
    """Bytes that were not yet sent when the timer was started."""

    def connection_made(self, transport: Any) -> None:
        self.parser: Any = _UpgradeIgnoringParser(self, self.parser)
        transport.set_write_buffer_limits(0)  # so that `pause_writing` is called whenever the client does not read
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:  # a request is being answered
            self._stop_timer()
            return
        self._header_bytes += len(data)
        if self._header_bytes > _MAX_HEADER_BYTES:
            self._close()
        elif self._timer is None:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_send_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End the connection; a client that still reads its last response has `send_seconds` for the rest of it."""
        super().shutdown()
        if self.cycle is not None and self.cycle.more_body:  # once it were complete, the request would be rejected
            self._close()
        self.loop.call_later(self.send_seconds, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_send_timer()

    def resume_writing(self) -> None:
        self._stop_send_timer()
        super().resume_writing()

    def _start_send_timer(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._send_timer = self.loop.call_later(self.send_seconds, self._check_progress)

    def _stop_send_timer(self) -> None:
        if self._send_timer:
            self._send_timer.cancel()
            self._send_timer = None

    def _check_progress(self) -> None:
        """Disconnect a client that has read nothing; closing the connection would wait until it has read everything."""
        if self.transport.get_write_buffer_size() < self._unsent:
            self._start_send_timer()
        else:
            self.transport.abort()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.receive_seconds, self._close)

    def _stop_timer(self) -> None:
        self._header_bytes = 0
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


class _UpgradeIgnoringParser:
    """A parser that handles a request to upgrade as any other request, which HTTP allows (RFC 9110, section 7.8).

    Clients that prefer HTTP/2 send `Upgrade: h2c` with their first request. httptools ends such a request after its
    header, so another parser has to read its body.
    """

    def __init__(self, protocol: _HttpProtocol, parser: Any) -> None:
        self._protocol, self._parser = protocol, parser

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
            lengths = [header for header in self._protocol.headers if header[0] in _LENGTH_HEADERS]
            if any(value != b"0" for _, value in lengths):
                callbacks = _Callbacks(self._protocol)
                self._parser = httptools.HttpRequestParser(callbacks)
                self._parser.feed_data(b"\r\n".join([b"POST / HTTP/1.1", *map(b": ".join, lengths), b"", b""]))
                callbacks.forwarded = True
                self._protocol.cycle.more_body = True

    def should_upgrade(self) -> bool:
        return False


class _Callbacks:
    """Forwards the calls of a parser to the protocol once it is to."""

    def __init__(self, protocol: _HttpProtocol) -> None:
        self._protocol, self.forwarded = protocol, False

    def __getattr__(self, name: str) -> Callable[..., None]:
        callback = getattr(self._protocol, name)

        def forward(*arguments: Any) -> None:
            if self.forwarded:
                callback(*arguments)

        return forward

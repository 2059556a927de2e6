"""A uvicorn protocol that closes connections whose request header does not arrive in time."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MAX_HEADER_BYTES = 65_536


def header_timeout_protocol(seconds: float) -> type[asyncio.Protocol]:
    """A protocol class that closes a connection if a complete request header does not arrive within this time."""
    return type("HeaderTimeoutProtocol", (_HeaderTimeoutProtocol,), {"seconds": seconds})


class _HeaderTimeoutProtocol(HttpToolsProtocol):
    seconds: float
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    """Bytes received since the last complete request."""

    def connection_made(self, transport: Any) -> None:
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
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self._close)

    def _stop_timer(self) -> None:
        self._header_bytes = 0
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()

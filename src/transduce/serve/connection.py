"""A connection that does not wait for ever."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEADER_BYTES = 65_536


def impatient(seconds: float) -> type[asyncio.Protocol]:
    """Connections that are closed where a request's header does not arrive whole within these seconds."""
    return type("ImpatientConnection", (_Connection,), {"seconds": seconds})


class _Connection(HttpToolsProtocol):
    seconds: float
    _timer: asyncio.TimerHandle | None = None
    _read = 0
    """Bytes since the last request that arrived whole."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_waiting()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._answering:
            self._stop_waiting()
            return
        self._read += len(data)
        if self._read > _HEADER_BYTES:
            self._give_up()
        elif self._timer is None:
            self._start_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_waiting(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self._give_up)

    def _stop_waiting(self) -> None:
        self._read = 0
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()

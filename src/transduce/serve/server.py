"""The server process: listening socket, connections with timeouts for clients, signals, graceful shutdown."""

import asyncio
import errno
import logging
import math
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from time import monotonic
from types import FrameType
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from transduce.errors import ConfigError
from transduce.serve.limits import error_location
from transduce.serve.middleware import AdmissionMiddleware

_KEEP_ALIVE_SECONDS = 30
_BACKLOG = 2048
_SEND_BUFFER = 1 << 18
"""Bytes of a response in the kernel. With Linux's default of 4 MB, slow clients would look like idle ones."""
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LEAST_IDLE_SECONDS = 0.2
"""Time without a request after which a connection may be closed for a new one."""
_RETRY_SECONDS = 0.5
"""Time after which the server tries again to accept connections if there were too many."""
_MAX_DESCRIPTORS = 65_536
_RESERVED_DESCRIPTORS = 32
"""File descriptors that are not for connections."""
SHUTDOWN_SECONDS = 25.0
"""Time that requests in flight, and clients that read their responses, have after the first signal."""
_LAST_SECONDS = 8.0
"""Time after that at which the operating system ends the process, whatever it does."""
_PROBE_SECONDS = 0.5
"""Time between looks whether a client that has closed its sending side is still there."""
_SWITCH_INTERVAL = 0.0005
"""Seconds after which the scheduler's thread yields the interpreter to the event loop; Python's default is 5 ms."""

_MAX_HEADER_BYTES = 65_536
_LENGTH_HEADERS = (b"content-length", b"transfer-encoding")

_log = logging.getLogger(__name__)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 chooses a free port."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)[0]
        # asyncio sets TCP_NODELAY only if the protocol is given; without it, responses are delayed by 40 ms.
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        listening.bind(address)
        listening.listen(_BACKLOG)
        return listening
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None


def url_host(host: str) -> str:
    """A host name or IP address as written in a URL: IPv6 addresses are put in brackets."""
    return f"[{host}]" if ":" in host else host


def allowed_hosts(listening: socket.socket, host: str) -> set[str] | None:
    """The host names of a socket that only this machine can reach; None if other machines can reach it."""
    address = listening.getsockname()[0]
    if not ip_address(address).is_loopback:
        return None
    return {url_host(name).lower() for name in ("localhost", "127.0.0.1", "::1", address, host)}


def serve_on(listening: socket.socket, app: AdmissionMiddleware, started: Callable[[], None]) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C, then reject new requests, finish accepted ones and return."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = True  # it logs complete URLs; the middleware does not
    timeouts = {"receive_seconds": app.limits.receive_seconds, "send_seconds": app.limits.send_seconds}
    config = uvicorn.Config(
        app,
        http=type("HttpProtocol", (_HttpProtocol,), timeouts),
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    sys.setswitchinterval(_SWITCH_INTERVAL)
    _raise_descriptor_limit()
    _Server(config, app, started).run([listening])


def _raise_descriptor_limit() -> None:
    """Allow as many open files as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _MAX_DESCRIPTORS)), hard))


class _Server(uvicorn.Server):
    """Finishes accepted requests before it stops, in a limited time; a second signal stops it immediately."""

    def __init__(self, config: uvicorn.Config, app: AdmissionMiddleware, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._state, self._started = app.state, started
        self._end = math.inf
        """When requests in flight are cancelled, by the clock of `time.monotonic`."""
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._has_closed = False
        """Whether an idle connection had to be closed, which is logged once."""
        self._max_connections = max(descriptors - _RESERVED_DESCRIPTORS, descriptors // 2)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `started` when the server accepts connections and handles signals."""
        await super().startup([])
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # nohup ignores it
            signal.signal(signal.SIGHUP, self.handle_exit)
        self._accepting = [asyncio.create_task(self._accept(listening)) for listening in sockets or []]
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and close those that are open."""
        for task in self._accepting:
            task.cancel()
        self.config.timeout_graceful_shutdown = max(1, round(min(self._end - monotonic(), SHUTDOWN_SECONDS)))
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        """Accept connections; asyncio's own server would log a traceback thousands of times if there are too many."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        refused = False
        while True:
            try:
                if self._is_full:
                    if (oldest := self._oldest_idle()) is None:
                        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                    if monotonic() - oldest.last_used < _LEAST_IDLE_SECONDS:  # its request may be on its way
                        await asyncio.sleep(_LEAST_IDLE_SECONDS)
                        continue
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:  # otherwise, the client has already closed the connection
                    if not refused:
                        _log.warning("no connections are accepted until others end: %s", error.strerror)
                    refused = True
                    await asyncio.sleep(_RETRY_SECONDS)
                continue
            refused = False
            if self._is_full and (oldest := self._oldest_idle()):
                if not self._has_closed:
                    _log.warning("idle connections are closed for new ones: %d are open", self._max_connections)
                self._has_closed = True
                oldest.transport.abort()
            try:
                await loop.connect_accepted_socket(self._protocol, connection)
            except Exception as error:
                _log.error("a connection failed: %s", error_location(error))
                connection.close()

    @property
    def _is_full(self) -> bool:
        return len(self.server_state.connections) >= self._max_connections

    def _oldest_idle(self) -> "_HttpProtocol | None":
        """The connection that has been without a request for the longest time."""
        connections: set[Any] = self.server_state.connections
        return min((protocol for protocol in connections if protocol.is_idle), key=lambda p: p.last_used, default=None)

    def _protocol(self) -> asyncio.Protocol:
        protocol: type[Any] = self.config.http_protocol_class
        return protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called on the first SIGTERM, SIGINT or SIGHUP; the next one, or the alarm, ends the process at once.

        The operating system does that, so it does not matter what the threads of the process do then.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, SHUTDOWN_SECONDS + _LAST_SECONDS)
        self._state.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Stop once no request is in flight, or when their time is over; uvicorn calls this ten times a second."""
        if self._state.draining:
            self._end = min(self._end, monotonic() + SHUTDOWN_SECONDS)
            if monotonic() > self._end:
                for task in list(self._state.tasks):
                    task.cancel()
            if not self._state.in_flight:
                self.should_exit = True
        return await super().on_tick(counter)


class _HttpProtocol(HttpToolsProtocol):
    """The HTTP/1.1 protocol of a connection: uvicorn's, with timeouts for clients, and without upgrades."""

    receive_seconds: float
    """A connection is closed if a complete request header does not arrive within this time."""
    send_seconds: float
    """A connection is closed if its client reads nothing of a response for this time."""
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    """Bytes received since the last complete request."""
    _send_timer: asyncio.TimerHandle | None = None
    _unsent = 0
    """Bytes that were not yet sent when the timer was started."""
    _is_half_closed = False
    """Whether the client has closed its sending side."""

    def connection_made(self, transport: Any) -> None:
        self.parser: Any = _UpgradeIgnoringParser(self, self.parser)
        transport.set_write_buffer_limits(0)  # so that `pause_writing` is called whenever the client does not read
        super().connection_made(transport)
        self.last_used = monotonic()
        self._start_timer()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        is_busy = self.cycle is not None and not self.cycle.response_complete
        is_sending = self.transport.is_closing() or self.transport.get_write_buffer_size()
        return not (is_busy or is_sending)

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

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn keeps no connection open
        """Answer a client that has nothing more to send; returns whether the connection stays open.

        The client may also have closed the connection. Then it refuses what it receives, which is an error of the
        socket. It gets an interim response, which clients have to ignore (RFC 9110, section 15.2).
        """
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        self._is_half_closed = True
        if not cycle.response_started and self.scope["http_version"] == "1.1":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._probe()
        return True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.last_used = monotonic()
        if self._is_half_closed:
            self.transport.close()

    def _probe(self) -> None:
        """Look, from time to time, whether the client is gone."""
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self.loop.call_later(_PROBE_SECONDS, self._probe)

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

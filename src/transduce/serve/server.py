"""The server process: listening socket, signals, graceful shutdown."""

import asyncio
import errno
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from ipaddress import ip_address
from types import FrameType
from typing import Any

import uvicorn

from transduce.errors import ConfigError
from transduce.serve.errors import error_location
from transduce.serve.http_protocol import http_protocol
from transduce.serve.middleware import AdmissionMiddleware

_KEEP_ALIVE_SECONDS = 30
_BACKLOG = 2048
_SEND_BUFFER = 1 << 18
"""Bytes of a response in the kernel. With Linux's default of 4 MB, slow clients would look like idle ones."""
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_SECONDS = 0.5
"""Time after which the server tries again to accept connections if there were too many."""
_SWITCH_INTERVAL = 0.0005
"""Seconds after which the scheduler's thread yields the interpreter to the event loop; Python's default is 5 ms."""

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
    config = uvicorn.Config(
        app,
        http=http_protocol(app.limits.receive_seconds, app.limits.send_seconds),
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    sys.setswitchinterval(_SWITCH_INTERVAL)
    _Server(config, app, started).run([listening])


class _Server(uvicorn.Server):
    """Finishes accepted requests before it stops; a second signal stops it immediately."""

    def __init__(self, config: uvicorn.Config, app: AdmissionMiddleware, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._state, self._started = app.state, started

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
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        """Accept connections; asyncio's own server would log a traceback thousands of times if there are too many."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        refused = False
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:  # otherwise, the client has already closed the connection
                    if not refused:
                        _log.warning("no connections are accepted until others end: %s", error.strerror)
                    refused = True
                    await asyncio.sleep(_RETRY_SECONDS)
                continue
            refused = False
            try:
                await loop.connect_accepted_socket(self._protocol, connection)
            except Exception as error:
                _log.error("a connection failed: %s", error_location(error))
                connection.close()

    def _protocol(self) -> asyncio.Protocol:
        protocol: type[Any] = self.config.http_protocol_class
        return protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGTERM, SIGINT and SIGHUP."""
        if self._state.draining:
            self.should_exit = self.force_exit = True
        self._state.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Stop once no request is in flight; uvicorn calls this ten times a second."""
        if self._state.draining and not self._state.in_flight:
            self.should_exit = True
        return await super().on_tick(counter)

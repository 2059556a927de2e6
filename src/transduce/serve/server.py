"""The process that serves: its socket, its signals, its end."""

import logging
import socket
import sys
from collections.abc import Callable
from ipaddress import ip_address
from types import FrameType

import uvicorn

from transduce.errors import ConfigError
from transduce.serve.connection import impatient
from transduce.serve.gate import Gate

_KEEP_ALIVE = 30
_BACKLOG = 2048
_SWITCH = 0.0005
"""Seconds that the translating thread waits, between two steps, for the one that talks to clients; 5 ms by default."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that clients can reach; port 0 is any that is free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)[0]
        # The protocol is named, or asyncio would not know TCP, and answers would wait for acknowledgements: 40 ms each.
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        return listening
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None


def in_address(name: str) -> str:
    """A name or an IP address as it stands in a URL."""
    return f"[{name}]" if ":" in name else name


def hosts_of(listening: socket.socket, host: str) -> set[str] | None:
    """The names that this machine alone has for a socket that it alone can reach; None where others can, too."""
    address = listening.getsockname()[0]
    if not ip_address(address).is_loopback:
        return None
    return {in_address(name).lower() for name in ("localhost", "127.0.0.1", "::1", address, host)}


def serve_on(listening: socket.socket, gate: Gate, started: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C: then no new requests are taken, accepted ones finish, and it returns."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = True  # its lines hold whole addresses; the gate logs without
    config = uvicorn.Config(
        gate,
        http=impatient(gate.limits.receive_seconds),
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
    )
    sys.setswitchinterval(_SWITCH)
    _Server(config, gate, started).run([listening])


class _Server(uvicorn.Server):
    """Drains before it stops; a second signal stops it at once."""

    def __init__(self, config: uvicorn.Config, gate: Gate, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._traffic, self._started = gate.traffic, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Once, when signals are understood already."""
        await super().startup(sockets)
        self._started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by signals."""
        if self._traffic.draining:
            self.should_exit = self.force_exit = True
        self._traffic.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if self._traffic.draining and not self._traffic.in_flight:
            self.should_exit = True
        return await super().on_tick(counter)

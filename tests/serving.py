"""Servers for tests, in a thread of this process or in a process of their own."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import uvicorn

from transduce.language_model.generator import Generator
from transduce.serve.api_keys import ApiKeys
from transduce.serve.app import make_app
from transduce.serve.limits import Limits
from transduce.serve.middleware import AdmissionMiddleware
from transduce.serve.served_models import ServedModels
from transduce.serve.server import allowed_hosts, listen, serve_on
from transduce.translation.translator import Translator

TIMEOUT = 300
"""Seconds after which a test gives up waiting for a server."""
for _phase in ("connect", "read", "write", "pool"):  # by default 5 s, which a busy machine may need
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _phase, TIMEOUT)
# Otherwise every httpx.get reads all certificates, which takes ten times as long as the request.
httpx._transports.default.create_ssl_context = cache(httpx.create_ssl_context)
# uvicorn looks ten times a second whether it is to stop; most servers of the tests run no longer than that.
uvicorn.server.asyncio = SimpleNamespace(**vars(asyncio) | {"sleep": lambda seconds: asyncio.sleep(seconds / 10)})

INSPECT = "/inspect/look"
"""The path of an inspection."""
TEXTS = ["babo dego", "gibo", "", "dedu gigo babo"]
"""Texts to translate."""


@contextmanager
def serve_in_thread(
    translators: Sequence[tuple[str, Translator]],
    keys: Sequence[str] = (),
    generators: Mapping[str, Generator] | None = None,
    suggestions: Path | None = None,
    **limits: Any,
) -> Iterator[tuple[str, AdmissionMiddleware]]:
    """Run a server; yields its address and its application."""
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        hosts = allowed_hosts(listening, "127.0.0.1")
        app = make_app(ServedModels(translators), Limits(**limits), ApiKeys(list(keys)), hosts, generators, suggestions)
        thread = threading.Thread(target=serve_on, args=(listening, app, lambda: None))
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}", app
        finally:
            app.state.draining = True
            thread.join(TIMEOUT)
            assert not thread.is_alive()


def host_and_port(address: str) -> tuple[str, int]:
    """The host and the port of the address of a server."""
    host, port = address.removeprefix("http://").split(":")
    return host, int(port)


def send_raw(address: str, *parts: bytes, pause: float = 0.0) -> bytes:
    """Send raw bytes part by part; returns the response until the server closes the connection."""
    with socket.create_connection(host_and_port(address), timeout=TIMEOUT) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except OSError:
            pass  # the server may close the connection early
        received = b""
        try:
            while more := connection.recv(65_536):
                received += more
        except ConnectionResetError:
            pass
        return received


def raw_status(response: bytes) -> int:
    """The status of a response as `send_raw` returns it."""
    return int(response.split(b" ", 2)[1])


def request_head(path: str, length: int | None, kind: str = "application/json") -> bytes:
    """The header of a POST request with a body of this length, or in chunks if that is None."""
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Type: {kind}", size]
    return "\r\n".join([*lines, "", ""]).encode()


def wait_until(condition: Any) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def error_message(response: httpx.Response, status: int) -> str:
    """The message of an error response with this status."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json().keys() == {"error"}
    return response.json()["error"]


def events(stream: str) -> list[tuple[str, Any]]:
    """Parse server-sent events."""
    parsed = []
    for block in stream.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        parsed.append((fields["event"], json.loads(fields["data"])))
    return parsed


class ServerProcess:
    """`transduce serve` on a free port; its stderr is written to `log`."""

    def __init__(
        self,
        *arguments: str | Path,
        log: Path,
        start: Callable[..., Any] | None = None,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        """`start` is `CommandLine.background`; without it, a new interpreter is started."""
        self._log = log
        words = ["serve", "--port", "0", *map(str, arguments)]
        with log.open("w") as stderr:
            if start:
                self.process = start(*words, stderr=stderr, **options)
            else:
                command = [sys.executable, "-m", "transduce", *words]
                self.process = subprocess.Popen(command, stderr=stderr, env=environment, **options)
        self.address = self._wait_for_address()

    def _wait_for_address(self) -> str:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            if match := re.search(r"serving .* on (http://\S+)\n", self.stderr):
                return match[1]
            assert self.process.poll() is None, self.stderr
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError("the server did not start")

    @property
    def stderr(self) -> str:
        """The output on stderr so far."""
        return self._log.read_text(encoding="utf-8")

    @property
    def memory(self) -> int:
        """Resident memory in bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        return metric_value(httpx.get(f"{self.address}/metrics").text, name, **labels)

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT)


def metric_value(metrics: str, name: str, **labels: str) -> float:
    """The sum of a metric over all series that have these labels."""
    lines = [line for line in metrics.splitlines() if re.match(rf"{name}[ {{]", line)]
    pairs = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(float(line.split()[-1]) for line in lines if all(pair in line for pair in pairs))

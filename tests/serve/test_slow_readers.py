"""Clients that read their response slowly or not at all: they are disconnected, and cost little memory until then."""

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers import small_language_model
from serving import TIMEOUT, ServerProcess, host_and_port, request_head, send_raw, serve_in_thread, wait_until
from starlette.responses import Response

from transduce.language_model.generator import Generator
from transduce.models.folder import save_model
from transduce.serve.server import _HttpProtocol
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def generator(toy_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Generator:
    folder = tmp_path_factory.mktemp("language") / "lm"
    model = small_language_model(vocab_size=toy_tokenizer.vocab_size)
    save_model(folder, model, toy_tokenizer, {"task": "language_model", "max_length": 40})
    return Generator.load(folder, device="cpu")


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """The addresses of the clients whose connections have ended."""
    lose, lost = _HttpProtocol.connection_lost, set[Any]()

    def connection_lost(protocol: Any, error: Exception | None) -> None:
        lose(protocol, error)
        lost.add(protocol.client)

    monkeypatch.setattr(_HttpProtocol, "connection_lost", connection_lost)
    return lost


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel keep little of a response, so that some events are enough to fill it."""
    monkeypatch.setattr("transduce.serve.server._SEND_BUFFER", 1 << 15)


def connect(address: str, buffer: int = 4096) -> socket.socket:
    """A connection of a client whose kernel receives little before it reads."""
    connection = socket.socket()
    connection.settimeout(TIMEOUT)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.connect(host_and_port(address))
    return connection


def post(address: str, path: str, **body: Any) -> socket.socket:
    """A connection that has sent a request, and reads nothing."""
    data = json.dumps(body).encode()
    connection = connect(address)
    connection.sendall(request_head(path, len(data)) + data)
    return connection


def not_reading(address: str, buffer: int = 4096) -> socket.socket:
    """A connection that has requested more than fits into all buffers, and reads nothing."""
    connection = connect(address, buffer)
    connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 800)
    return connection


def rest_of(connection: socket.socket) -> bytes:
    """What arrives until the server ends the connection."""
    received = bytearray()
    try:
        while more := connection.recv(1 << 20):
            received += more
    except ConnectionResetError:
        pass
    return bytes(received)


# Complete responses


def test_a_client_that_does_not_read_is_disconnected(translator: Translator, lost: set[Any]) -> None:
    with serve_in_thread([("toy", translator)], send_seconds=0.5) as (address, _):
        with not_reading(address) as connection:
            wait_until(lambda: connection.getsockname() in lost)
            received = len(rest_of(connection))
        assert received < 800 * len(httpx.get(f"{address}/openapi.json").content)


def test_a_client_that_reads_slowly_gets_everything(translator: Translator) -> None:
    with serve_in_thread([("toy", translator)], send_seconds=2) as (address, _):
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        size = len(send_raw(address, request)) - len("connection: close\r\n")
        received, start = 0, time.monotonic()
        with not_reading(address, buffer=1 << 16) as connection:
            while received < 800 * size:
                more = connection.recv(1 << 16)
                assert more, received
                received += len(more)
                if time.monotonic() < start + 2.5:  # longer than the timeout
                    time.sleep(0.03)


def test_a_client_that_does_not_read_does_not_prevent_shutdown(transduce: Any, trained: Any, tmp_path: Path) -> None:
    arguments = ["-m", f"toy={trained.run}", "--limit", "send_seconds=1"]
    with (
        ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background) as server,
        not_reading(server.address),
    ):
        wait_until(lambda: server.metric("transduce_requests_total", path="/openapi.json") > 0)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(TIMEOUT) == 0
        assert "Traceback" not in server.stderr


def test_a_body_that_does_not_arrive_does_not_prevent_shutdown(translator: Translator) -> None:
    limits = {"receive_seconds": 2 * TIMEOUT, "send_seconds": 2 * TIMEOUT}
    with serve_in_thread([("toy", translator)], **limits) as (address, _):
        host, port = address.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)), timeout=TIMEOUT)
        head = request_head("/v1/translate", 100).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")  # the server waits for the body
    with connection:  # the server has ended
        assert connection.recv(100) == b""


def test_at_shutdown_a_client_has_a_limited_time_for_the_rest_of_its_response(translator: Translator) -> None:
    size, received = 30_000_000, 0
    with serve_in_thread([("toy", translator)], send_seconds=1) as (address, app):
        app._app.add_api_route("/large", lambda: Response(b"x" * size))  # type: ignore[attr-defined]
        with connect(address, buffer=1 << 16) as connection:
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received += len(connection.recv(1000))
            app.state.draining = True
            try:
                while more := connection.recv(1 << 17):  # fast enough for `send_seconds`, but not for all of it
                    received += len(more)
                    time.sleep(0.02)
            except ConnectionResetError:
                pass
    assert received < size


def test_a_client_that_does_not_read_a_file_is_disconnected(
    translator: Translator, lost: set[Any], small_buffers: None
) -> None:
    page = b"<p>babo</p><!--" + b"x" * 1_000_000 + b"-->"
    with serve_in_thread([("en-de", translator)], send_seconds=0.5) as (address, app):
        form = {"source": "en", "target": "de"}
        answer = httpx.post(f"{address}/translate_file", files={"file": ("a.html", page)}, data=form, timeout=TIMEOUT)
        path = answer.json()["translatedFileUrl"].removeprefix(address)
        with connect(address) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            wait_until(lambda: connection.getsockname() in lost)
            assert len(rest_of(connection)) < len(page)
        wait_until(lambda: app.state.in_flight == 0)
        assert len(httpx.get(f"{address}{path}", timeout=TIMEOUT).content) > 1_000_000


# Streams


TEXT = "\n".join(["babo dego gibo dedu gigo"] * 300)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/translate", {"text": TEXT, "nbest": 4, "beam": 4, "sentences": True}),
        ("/v1/completions", {"prompt": "babo", "max_tokens": 100_000, "n": 4, "temperature": 5, "seed": 3}),
    ],
)
def test_a_client_that_does_not_read_a_stream_is_disconnected_and_its_work_dropped(
    translator: Translator, generator: Generator, lost: set[Any], small_buffers: None, path: str, body: dict[str, Any]
) -> None:
    limits: dict[str, Any] = {"max_length": 100_000, "send_seconds": 0.5, "seconds": 600}
    with serve_in_thread([("toy", translator)], generators={"lm": generator}, **limits) as (address, app):
        with post(address, path, **body, stream=True) as connection:
            wait_until(lambda: connection.getsockname() in lost)
            wait_until(lambda: app.state.in_flight == 0)
            received = rest_of(connection)
        assert received.startswith(b"HTTP/1.1 200 OK")
        assert b"event: done" not in received
        assert b"[DONE]" not in received
        other = {"text": "babo"} if "text" in body else {"prompt": "babo"}
        assert httpx.post(f"{address}{path}", json=other, timeout=TIMEOUT).status_code == 200


def test_parts_that_a_client_does_not_read_are_merged(
    generator: Generator, small_buffers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated, events = threading.Event(), generator.event_steps

    def counted(*arguments: Any, **options: Any) -> Iterator[Any]:
        yield from events(*arguments, **options)
        generated.set()

    monkeypatch.setattr(generator, "event_steps", counted)
    body = {"prompt": "babo", "max_tokens": 500, "n": 16, "seed": 1, "logprobs": 0}
    with serve_in_thread([], generators={"lm": generator}, send_seconds=TIMEOUT, seconds=TIMEOUT) as (address, _):
        whole = httpx.post(f"{address}/v1/completions", json=body, timeout=TIMEOUT).json()
        generated.clear()
        with post(address, "/v1/completions", **body, stream=True) as connection:
            assert generated.wait(TIMEOUT)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # from now on, it reads fast
            received = rest_of(connection).decode()
    *parts, end = [line.removeprefix("data: ") for line in received.splitlines() if line.startswith("data: ")]
    assert end == "[DONE]"
    choices = [choice for part in parts for choice in json.loads(part)["choices"]]
    tokens = whole["usage"]["completion_tokens"]
    assert tokens > 1000
    assert len(choices) < tokens / 2
    for index, expected in enumerate(whole["choices"]):
        own = [choice for choice in choices if choice["index"] == index]
        assert "".join(choice["text"] for choice in own) == expected["text"]
        assert [reason for choice in own if (reason := choice["finish_reason"])] == [expected["finish_reason"]]
        for name, values in expected["logprobs"].items():
            assert [value for choice in own for value in choice["logprobs"][name]] == values

"""The server with fuzzed, malicious, slow and disconnecting clients, under overload and at shutdown.

`make faults` (FAULTS=full) runs every test at full length; the normal test suite runs a short version.
"""

import asyncio
import json
import os
import random
import signal
import socket
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS
from serving import TIMEOUT, ServerProcess, metric_value, request_head, send_raw, serve_in_thread, wait_until

from transduce.translator import Translator

FULL = os.environ.get("FAULTS") == "full"
CASES = 10_000 if FULL else 40
DISCONNECTS = 200 if FULL else 20
OVERLOAD_SECONDS = 60 if FULL else 1
LINES = 1000 if FULL else 40
LARGE = [
    word for limit in ("seconds=600", "characters=1000000", "output_tokens=10000000") for word in ("--limit", limit)
]
"""Limits that allow a request with that many lines and a beam of 16."""
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
CAPACITY = 64 if FULL else 16
"""Number of clients that the server accepts without rejecting any: the size of its queue."""


@pytest.fixture(scope="module")
def translator(trained: Any) -> Translator:
    return Translator.load(trained.run)


@pytest.fixture(scope="module")
def address(translator: Translator) -> Iterator[str]:
    limits = {"body_bytes": 100_000, "characters": 2000}
    with serve_in_thread([("en-de", translator), ("toy", translator)], **limits) as (address, _):
        yield address


# Requests generated from the OpenAPI description


def test_no_request_violates_the_openapi_description(address: str) -> None:
    description = schemathesis.openapi.from_url(f"{address}/openapi.json")
    positive, negative = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    statuses = Counter[int]()
    for operation in (result.ok() for result in description.get_all_operations()):
        if "requestBody" in operation.definition.raw:
            for mode in (positive, negative):
                fuzz(operation, mode, address, CASES // 4, statuses)
        else:  # nothing to vary
            fuzz(operation, positive, address, 1, statuses)
    assert sum(statuses.values()) > CASES
    assert statuses[200] > CASES / 10, statuses  # many requests are valid
    assert statuses[400] > CASES / 10, statuses  # and many are not


def fuzz(operation: Any, mode: Any, address: str, cases: int, statuses: "Counter[int]") -> None:
    """Send this many requests to one route that match its description, or violate it."""

    @settings(
        max_examples=cases,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
        deadline=None,
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        response = case.call(base_url=address, timeout=TIMEOUT)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=[CHECKS.get_one(name) for name in CHECKED])

    check()


# Malicious bodies


def status(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def test_ten_megabytes_of_text_are_rejected(address: str) -> None:
    text = {"q": "babo " * 2_000_000, "source": "en", "target": "de"}
    with httpx.Client(base_url=address, timeout=TIMEOUT) as client:
        for path, body in (("/translate", text), ("/v1/translate", {"text": text["q"]})):
            assert client.post(path, json=body).status_code == 413
        assert client.post("/translate", data=text).status_code == 413
        assert client.post("/translate", files={"q": ("q.txt", text["q"])}).status_code == 413
        assert client.get("/ready").status_code == 200


def test_an_endless_body_is_not_read_completely(address: str) -> None:
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    response = send_raw(address, request_head("/translate", None), *[chunk] * 1600)  # 100 MB
    assert status(response) == 413
    assert status(send_raw(address, request_head("/translate", 10**15))) == 413


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 50_000,
        b'{"text":' * 10_000,
        b'{"text": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"text": "babo", "nbest": 1' + b"0" * 9000 + b"}",
        b'{"text": "babo", "beam": 1e999}',
        b'{"text": "babo", "length_penalty": NaN}',
        b'{"text": "\xff\xfe"}',
        b'{"text": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b"",
        b"\x00" * 1000,
        b'{"q": "babo", "source": "en", "target": "de", "alternatives": 1e9}',
    ],
)
def test_an_invalid_body_is_rejected(address: str, body: bytes) -> None:
    for path in ("/translate", "/v1/translate"):
        response = httpx.post(f"{address}{path}", content=body, headers={"content-type": "application/json"})
        assert response.status_code == 400, (path, response.text)
        assert response.json().keys() == {"error"}
        assert len(response.text) < 1000


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded", b"q=%FF%FE&source=en&target=de"),
        ("application/x-www-form-urlencoded", b"q=\xff\xfe&source=en&target=de"),
        ("application/x-www-form-urlencoded", b"a=b&" * 20_000),
        ("multipart/form-data", b"--x\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\nnonsense"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--x--\r\n',
        ),
    ],
)
def test_an_invalid_form_is_translated_or_rejected(address: str, kind: str, body: bytes) -> None:
    response = httpx.post(f"{address}/translate", content=body, headers={"content-type": kind}, timeout=TIMEOUT)
    assert response.status_code in (200, 400), response.text
    assert response.json().keys() in ({"error"}, {"translatedText"})


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ue011", "\u2581", "\u202e", "\r\r", "\u2028", "🏴" * 500, "́" * 1000])
def test_unusual_characters_are_translated(address: str, text: str) -> None:
    for path, body in (("/v1/translate", {"text": text}), ("/translate", {"q": text, "source": "en", "target": "de"})):
        response = httpx.post(f"{address}{path}", json=body, timeout=TIMEOUT)
        assert response.status_code == 200, response.text


def test_the_connection_of_a_slow_client_is_closed(address: str, translator: Translator) -> None:
    body = b'{"text": "babo"}'
    with serve_in_thread([("toy", translator)], receive_seconds=0.3) as (impatient, _):
        slow_body = send_raw(impatient, request_head("/v1/translate", 10_000), *[body] * 6, pause=0.1)
        assert status(slow_body) == 408
        slow_head = send_raw(impatient, *[bytes([byte]) for byte in b"POST /v"], pause=0.1)
        assert slow_head == b""  # closed without a response: there was no request yet
    endless_head = send_raw(address, b"GET / HTTP/1.1\r\n", *[b"X: " + b"a" * 8000 + b"\r\n"] * 20)
    assert status(endless_head or b" 431") in (400, 431)
    in_time = send_raw(
        address, request_head("/v1/translate", len(body)), *[body[n : n + 4] for n in range(0, 16, 4)], pause=0.05
    )
    assert status(in_time) == 200


def test_too_many_connections_are_one_line_and_later_ones_are_accepted(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    descriptors = 100
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))"
    arguments = ["-m", f"toy={trained.run}"]
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background, before=limit) as server:
        host, port = server.address.removeprefix("http://").split(":")
        connections = [socket.create_connection((host, int(port))) for _ in range(2 * descriptors)]
        wait_until(lambda: "no connections are accepted" in server.stderr)
        time.sleep(2)
        for connection in connections:
            connection.close()
        response = httpx.post(f"{server.address}/v1/translate", json={"text": "babo"}, timeout=TIMEOUT)
        assert response.status_code == 200
        lines = [line for line in server.stderr.splitlines() if "no connections are accepted" in line]
        assert lines[0].endswith("no connections are accepted until others end: Too many open files")
        assert len(lines) <= 2  # perhaps again while the connections are closed
        assert "Traceback" not in server.stderr


# Clients that disconnect


def test_requests_of_disconnected_clients_are_dropped(translator: Translator) -> None:
    with serve_in_thread([("toy", translator)], seconds=600) as (address, app):
        host, port = address.removeprefix("http://").split(":")
        text = "\n".join(["babo dego gibo dedu gigo"] * 600)

        def disconnect(seed: int) -> None:
            body = json.dumps({"text": text, "stream": seed % 2 == 0}).encode()
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(request_head("/v1/translate", len(body)) + body)
                if seed % 4 == 0:
                    connection.recv(100)  # the response has started
                time.sleep(random.Random(seed).random() / 20)

        for seed in range(DISCONNECTS):
            disconnect(seed)
        wait_until(lambda: metric_value(httpx.get(f"{address}/metrics").text, "transduce_running_sentences") == 0)
        wait_until(lambda: app.state.in_flight == 0)
        metrics = httpx.get(f"{address}/metrics").text
        done, dropped = (
            metric_value(metrics, f"transduce_{name}_total") for name in ("sentences", "dropped_sentences")
        )
        assert dropped > done, (dropped, done)
        assert metric_value(metrics, "transduce_waiting_requests") == 0
        assert httpx.post(f"{address}/v1/translate", json={"text": "babo"}, timeout=TIMEOUT).status_code == 200


# Shutdown


STEPS_WAIT_FOR = """
import os, time
from transduce.serve.scheduler import Scheduler
real = Scheduler._step
def step(*arguments):
    while not os.path.exists({path!r}):
        time.sleep(0.01)
    real(*arguments)
Scheduler._step = step
"""
"""Python code that stops the scheduler before its first step until a file exists."""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_accepted_requests_are_finished_before_shutdown(
    transduce: Any, trained: Any, tmp_path: Path, name: str
) -> None:
    arguments = ["-m", f"toy={trained.run}", *LARGE]
    text = "\n".join(["babo dego gibo dedu gigo"] * LINES)
    stop_steps = STEPS_WAIT_FOR.format(path=str(tmp_path / "continue"))
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background, before=stop_steps) as server:

        def post(number: int) -> httpx.Response:
            body = {"text": text, "beam": 4, "stream": number % 2 == 0}
            return httpx.post(f"{server.address}/v1/translate", json=body, timeout=600)

        with ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(post, 0)]
            wait_until(lambda: server.metric("transduce_running_sentences") > 0)
            others = server.metric("transduce_waiting_requests") + 5
            futures += [pool.submit(post, number) for number in range(1, 6)]
            wait_until(lambda: server.metric("transduce_waiting_requests") == others)
            server.process.send_signal(signal.Signals[name])
            wait_until(lambda: httpx.get(f"{server.address}/ready").status_code == 503)
            rejected = httpx.post(f"{server.address}/v1/translate", json={"text": "babo"})
            assert (rejected.status_code, rejected.json()) == (503, {"error": "the server is shutting down"})
            assert httpx.get(f"{server.address}/health").status_code == 200
            assert not any(future.done() for future in futures)
            (tmp_path / "continue").touch()
            for n, future in enumerate(futures):
                response = future.result()
                assert response.status_code == 200
                if n % 2 == 0:
                    assert response.text.count("event: sentence") == LINES
                    assert response.text.endswith("event: done\ndata: {}\n\n")
                else:
                    assert response.json()["translations"][0]["outputs"][0]["text"].count("\n") == LINES - 1
        assert server.process.wait(TIMEOUT) == 0
        assert "Traceback" not in server.stderr


def test_an_idle_server_stops_immediately_and_a_second_signal_does_not_wait(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    arguments = ["-m", f"toy={trained.run}", *LARGE]
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(TIMEOUT) == 0
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background) as server:
        body = json.dumps({"text": "\n".join(["babo dego gibo dedu gigo"] * 400), "beam": 16}).encode()
        host, port = server.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(request_head("/v1/translate", len(body)) + body)
            wait_until(lambda: server.metric("transduce_running_sentences") > 0)
            for _ in range(2):
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
            assert server.process.wait(TIMEOUT) is not None


# Overload


BODY = json.dumps({"q": "\n".join(["babo dego gibo dedu gigo"] * 40), "source": "en", "target": "de"}).encode()
REQUEST = request_head("/translate", len(BODY)).replace(b"Connection: close\r\n", b"") + BODY


async def load(address: str, clients: int, seconds: float, every: float) -> tuple["Counter[int]", list[float]]:
    """Each client sends a request every `every` seconds; returns status counts and the latencies of the accepted."""
    statuses: Counter[int] = Counter()
    latencies: list[float] = []
    host, port = address.removeprefix("http://").split(":")
    start = time.monotonic()

    async def client(index: int) -> None:
        next_start = start + every * index / clients
        reader, writer = await asyncio.open_connection(host, int(port))
        while next_start < start + seconds:
            await asyncio.sleep(next_start - time.monotonic())
            sent = time.monotonic()
            writer.write(REQUEST)
            header = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in header.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            statuses[status(header)] += 1
            if status(header) == 200:
                latencies.append(time.monotonic() - sent)
            else:
                assert b"retry-after: 1" in header.lower()
            next_start = max(next_start + every, time.monotonic())
        writer.close()

    await asyncio.gather(*(client(index) for index in range(clients)))
    return statuses, latencies


def p99(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100)[98]


def test_overload_by_a_factor_of_ten_is_translated_or_rejected(transduce: Any, trained: Any, tmp_path: Path) -> None:
    """First as many clients as fit the queue, each without pause; then ten times their request rate."""
    arguments = ["-m", f"toy={trained.run}", "--limit", f"queue={CAPACITY}"]
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background) as server:
        asyncio.run(load(server.address, CAPACITY, 1, every=0))
        normal, usual = asyncio.run(load(server.address, CAPACITY, OVERLOAD_SECONDS, every=0))
        rate = len(usual) / OVERLOAD_SECONDS
        before = server.memory
        statuses, latencies = asyncio.run(load(server.address, 10 * CAPACITY, OVERLOAD_SECONDS, every=CAPACITY / rate))
        after = server.memory
    rate_overloaded = statuses.total() / OVERLOAD_SECONDS
    print(
        f"\nfull: {rate:.0f} requests/s, p99 {p99(usual):.3f} s; overloaded: {rate_overloaded:.0f} requests/s, "
        f"{len(latencies) / OVERLOAD_SECONDS:.0f} answered, p99 {p99(latencies):.3f} s; "
        f"memory {before / 1e6:.0f} MB, then {after / 1e6:.0f} MB"
    )
    assert normal.keys() == {200}
    assert statuses.keys() == {200, 429}
    assert after < before + 30_000_000
    if FULL:
        assert p99(latencies) <= 2 * p99(usual)

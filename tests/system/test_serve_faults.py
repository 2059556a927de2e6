"""The server among bad clients: fuzzed, hostile, slow, gone, too many; and told to stop.

`make faults` (FAULTS=full) does everything as often as is promised; the suite a few times.
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
from serving import PATIENCE, ServerProcess, counted, in_thread

from transduce.translator import Translator

FULL = os.environ.get("FAULTS") == "full"
CASES = 10_000 if FULL else 120
DISCONNECTS = 200 if FULL else 20
OVERLOAD_SECONDS = 60 if FULL else 3
LINES = 1000 if FULL else 400
PROMISES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
CAPACITY = 64
"""Clients that fill the server without being refused: the size of its queue."""


@pytest.fixture(scope="module")
def translator(trained: Any) -> Translator:
    return Translator.load(trained.run)


@pytest.fixture(scope="module")
def address(translator: Translator) -> Iterator[str]:
    limits = {"receive_seconds": 1.0, "body_bytes": 100_000, "characters": 2000}
    with in_thread([("en-de", translator), ("toy", translator)], **limits) as (address, _):
        yield address


# Requests made up from the description


def test_no_request_makes_it_fail_or_break_its_word(address: str) -> None:
    description = schemathesis.openapi.from_url(f"{address}/openapi.json")
    positive, negative = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    answers = Counter[int]()
    for operation in (found.ok() for found in description.get_all_operations()):
        if operation.method.upper() == "POST":
            for mode in (positive, negative):
                fuzz(operation, mode, address, CASES // 4, answers)
        else:  # nothing to vary
            fuzz(operation, positive, address, 1, answers)
    assert sum(answers.values()) > CASES
    assert answers[200] > CASES / 10, answers  # not everything is nonsense
    assert answers[400] > CASES / 10, answers  # and much is


def fuzz(operation: Any, mode: Any, address: str, cases: int, answers: "Counter[int]") -> None:
    """So many requests to one route, as its description has them or against it."""

    @settings(
        max_examples=cases,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
        deadline=None,
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        answer = case.call(base_url=address, timeout=PATIENCE)
        answers[answer.status_code] += 1
        case.validate_response(answer, checks=[CHECKS.get_one(name) for name in PROMISES])

    check()


# Hostile bodies


def answer_to(address: str, *parts: bytes, pause: float = 0.0) -> bytes:
    """What the server says to raw bytes, sent part by part, until it closes the connection."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        except OSError:
            pass  # it may hang up before we are done
        received = b""
        try:
            while more := connection.recv(65_536):
                received += more
        except ConnectionResetError:
            pass
        return received


def head(path: str, length: int | None, kind: str = "application/json") -> bytes:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Type: {kind}", size]
    return "\r\n".join([*lines, "", ""]).encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_ten_megabytes_of_text_are_refused(address: str) -> None:
    text = {"q": "babo " * 2_000_000, "source": "en", "target": "de"}
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        for path, body in (("/translate", text), ("/v1/translate", {"text": text["q"]})):
            assert client.post(path, json=body).status_code == 413
        assert client.post("/translate", data=text).status_code == 413
        assert client.post("/translate", files={"q": ("q.txt", text["q"])}).status_code == 413
        assert client.get("/ready").status_code == 200


def test_a_body_without_end_is_not_read_to_its_end(address: str) -> None:
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    answer = answer_to(address, head("/translate", None), *[chunk] * 1600)  # 100 MB
    assert status(answer) == 413
    assert status(answer_to(address, head("/translate", 10**15))) == 413


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
def test_a_body_of_nonsense_is_refused(address: str, body: bytes) -> None:
    for path in ("/translate", "/v1/translate"):
        answer = httpx.post(f"{address}{path}", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, (path, answer.text)
        assert answer.json().keys() == {"error"}
        assert len(answer.text) < 1000


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
def test_a_form_of_nonsense_is_translated_or_refused(address: str, kind: str, body: bytes) -> None:
    answer = httpx.post(f"{address}/translate", content=body, headers={"content-type": kind}, timeout=PATIENCE)
    assert answer.status_code in (200, 400), answer.text
    assert answer.json().keys() in ({"error"}, {"translatedText"})


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ue011", "\u2581", "\u202e", "\r\r", "\u2028", "🏴" * 500, "́" * 1000])
def test_odd_characters_are_translated(address: str, text: str) -> None:
    for path, body in (("/v1/translate", {"text": text}), ("/translate", {"q": text, "source": "en", "target": "de"})):
        answer = httpx.post(f"{address}{path}", json=body, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text


def test_a_slow_sender_is_hung_up_on(address: str) -> None:
    body = b'{"text": "babo"}'
    slow_body = answer_to(address, head("/v1/translate", 10_000), *[body] * 6, pause=0.5)
    assert status(slow_body) == 408
    slow_head = answer_to(address, *[bytes([byte]) for byte in b"POST /v"], pause=0.5)
    assert slow_head == b""  # closed without a word: there was no request yet
    endless_head = answer_to(address, b"GET / HTTP/1.1\r\n", *[b"X: " + b"a" * 8000 + b"\r\n"] * 20)
    assert status(endless_head or b" 431") in (400, 431)
    patient = answer_to(
        address, head("/v1/translate", len(body)), *[body[n : n + 4] for n in range(0, 16, 4)], pause=0.05
    )
    assert status(patient) == 200


# Clients that go away


def test_clients_that_leave_stop_costing(translator: Translator) -> None:
    with in_thread([("toy", translator)], seconds=600) as (address, gate):
        host, port = address.removeprefix("http://").split(":")
        text = "\n".join(["babo dego gibo dedu gigo"] * 600)

        def leave(number: int) -> None:
            body = json.dumps({"text": text, "stream": number % 2 == 0}).encode()
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(head("/v1/translate", len(body)) + body)
                if number % 4 == 0:
                    connection.recv(100)  # it has begun
                time.sleep(random.Random(number).random() / 20)

        for number in range(DISCONNECTS):
            leave(number)
        wait_until(lambda: counted(httpx.get(f"{address}/metrics").text, "transduce_running_sentences") == 0)
        wait_until(lambda: gate.traffic.in_flight == 0)
        metrics = httpx.get(f"{address}/metrics").text
        done, dropped = (counted(metrics, f"transduce_{name}_total") for name in ("sentences", "dropped_sentences"))
        assert dropped > done, (dropped, done)
        assert counted(metrics, "transduce_waiting_requests") == 0
        assert httpx.post(f"{address}/v1/translate", json={"text": "babo"}, timeout=PATIENCE).status_code == 200


def wait_until(true: Any) -> None:
    give_up = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.05)


# Told to stop


def test_what_was_accepted_is_finished_before_it_ends(transduce: Any, trained: Any, tmp_path: Path) -> None:
    words = ["-m", f"toy={trained.run}", "--limit", "seconds=600", "--limit", "characters=1000000"]
    text = "\n".join(["babo dego gibo dedu gigo"] * LINES)
    with ServerProcess(*words, log=tmp_path / "log", environment=transduce.environment) as server:
        ask = {"text": text, "beam": 16}
        with ThreadPoolExecutor(8) as pool:
            answers = [
                pool.submit(
                    httpx.post, f"{server.address}/v1/translate", json=ask | {"stream": n % 2 == 0}, timeout=600
                )
                for n in range(6)
            ]
            wait_until(lambda: server.count("transduce_running_sentences") > 0)
            wait_until(lambda: server.count("transduce_waiting_requests") == 6)
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: httpx.get(f"{server.address}/ready").status_code == 503)
            refused = httpx.post(f"{server.address}/v1/translate", json={"text": "babo"})
            assert (refused.status_code, refused.json()) == (503, {"error": "the server is shutting down"})
            assert httpx.get(f"{server.address}/health").status_code == 200
            assert not any(answer.done() for answer in answers)
            for n, answer in enumerate(answers):
                found = answer.result()
                assert found.status_code == 200
                if n % 2 == 0:
                    assert found.text.count("event: sentence") == LINES
                    assert found.text.endswith("event: done\ndata: {}\n\n")
                else:
                    assert found.json()["translations"][0]["outputs"][0]["text"].count("\n") == LINES - 1
        assert server.process.wait(PATIENCE) == 0
        assert "Traceback" not in server.said


def test_an_idle_server_ends_at_once_and_a_second_signal_does_not_wait(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    words = ["-m", f"toy={trained.run}", "--limit", "seconds=600", "--limit", "characters=1000000"]
    with ServerProcess(*words, log=tmp_path / "log", environment=transduce.environment) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) == 0
    with ServerProcess(*words, log=tmp_path / "log", environment=transduce.environment) as server:
        body = json.dumps({"text": "\n".join(["babo dego gibo dedu gigo"] * 1000), "beam": 16}).encode()
        host, port = server.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head("/v1/translate", len(body)) + body)
            wait_until(lambda: server.count("transduce_running_sentences") > 0)
            for _ in range(2):
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
            assert server.process.wait(PATIENCE) is not None


# Too many


BODY = json.dumps({"q": "\n".join(["babo dego gibo dedu gigo"] * 40), "source": "en", "target": "de"}).encode()
REQUEST = head("/translate", len(BODY)).replace(b"Connection: close\r\n", b"") + BODY


async def load(address: str, clients: int, seconds: float, every: float) -> tuple["Counter[int]", list[float]]:
    """The answers to clients that each ask again after `every` seconds, and the seconds of those not refused."""
    answers: Counter[int] = Counter()
    latencies: list[float] = []
    host, port = address.removeprefix("http://").split(":")
    start = time.monotonic()

    async def client(number: int) -> None:
        turn = start + every * number / clients
        reader, writer = await asyncio.open_connection(host, int(port))
        while turn < start + seconds:
            await asyncio.sleep(turn - time.monotonic())
            began = time.monotonic()
            writer.write(REQUEST)
            got = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in got.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            answers[status(got)] += 1
            if status(got) == 200:
                latencies.append(time.monotonic() - began)
            else:
                assert b"retry-after: 1" in got.lower()
            turn = max(turn + every, time.monotonic())
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return answers, latencies


def p99(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100)[98]


def test_ten_times_too_many_requests_are_translated_or_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    """First as many clients as the queue has places, each asking again at once; then ten times their requests."""
    words = ["-m", f"toy={trained.run}"]
    with ServerProcess(*words, log=tmp_path / "log", environment=transduce.environment) as server:
        asyncio.run(load(server.address, CAPACITY, 1, every=0))
        normal, usual = asyncio.run(load(server.address, CAPACITY, OVERLOAD_SECONDS, every=0))
        rate = len(usual) / OVERLOAD_SECONDS
        before = server.memory
        answers, latencies = asyncio.run(load(server.address, 10 * CAPACITY, OVERLOAD_SECONDS, every=CAPACITY / rate))
        after = server.memory
    asked = answers.total() / OVERLOAD_SECONDS
    print(
        f"\nfull: {rate:.0f} requests/s, p99 {p99(usual):.3f} s; overloaded: {asked:.0f} requests/s, "
        f"{len(latencies) / OVERLOAD_SECONDS:.0f} answered, p99 {p99(latencies):.3f} s; "
        f"memory {before / 1e6:.0f} MB, then {after / 1e6:.0f} MB"
    )
    assert normal.keys() == {200}
    assert answers.keys() == {200, 429}
    assert after < before + 30_000_000
    if FULL:
        assert p99(latencies) <= 2 * p99(usual)

"""Requests that are meant to stop the server: other clients are answered in the meantime, and it ends when it is told.

Each of these once made other clients wait, or was accepted although it should not be.
"""

import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import TIMEOUT, ServerProcess, error_message, host_and_port, raw_status, request_head, serve_in_thread

from transduce.translation.translator import Translator

PATIENCE = 4.0
"""Seconds that another client may have to wait."""


@pytest.fixture(scope="module")
def address(translator: Translator) -> Iterator[str]:
    with serve_in_thread([("en-de", translator)]) as (address, _):
        httpx.post(f"{address}/v1/translate", json={"text": "babo"})  # the engine starts
        yield address


@contextmanager
def answered_in_the_meantime(address: str) -> Iterator[None]:
    """Other clients translate and look at /health all the time; none of them waits for long, and none is refused."""
    stop, waits, statuses = threading.Event(), list[float](), set[int]()
    start = time.perf_counter()
    for _ in range(5):
        post(address, "/v1/translate", {"text": "babo dego"})
    usual = (time.perf_counter() - start) / 5  # long if the machine is busy

    def repeat(request: Callable[[httpx.Client], httpx.Response]) -> None:
        with httpx.Client(base_url=address, timeout=TIMEOUT) as client:
            while not stop.is_set():
                start = time.perf_counter()
                statuses.add(request(client).status_code)
                waits.append(time.perf_counter() - start)
                time.sleep(0.02)

    requests: list[Callable[[httpx.Client], httpx.Response]] = [
        lambda client: client.get("/health"),
        lambda client: client.post("/v1/translate", json={"text": "babo dego"}),
    ]
    threads = [threading.Thread(target=repeat, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(TIMEOUT)
    assert statuses == {200}
    assert max(waits) < PATIENCE + 20 * usual


def post(address: str, path: str, body: Any, **options: Any) -> httpx.Response:
    return httpx.post(f"{address}{path}", json=body, timeout=TIMEOUT, **options)


def test_a_translation_of_a_term_that_is_longer_than_an_output(address: str) -> None:
    for characters, status, reason in ((200, 400, "tokens of terms"), (6_000, 413, "at most 200 characters")):
        terms = {"babo": "b " * (characters // 2)}
        with answered_in_the_meantime(address):
            response = post(address, "/v1/translate", {"text": "babo " * 6, "glossary": terms})
        assert reason in error_message(response, status)


def test_terms_that_are_missing_everywhere_are_searched_for_in_the_queue(address: str) -> None:
    """The longest legal glossary: every sentence is searched for several times."""
    body = {"text": "babo dego gibo\n" * 300, "glossary": {"babo": "gi " * 20, "gibo": "do " * 20}, "beam": 16}
    with answered_in_the_meantime(address):
        assert post(address, "/v1/translate", body).status_code in (200, 413, 503)


def test_html_with_very_many_tags(address: str) -> None:
    for page in ("<b>" * 60_000, "<sup>" * 20_000, "<p>a</p>" * 1_000):
        with answered_in_the_meantime(address):
            response = post(address, "/translate", {"q": page, "source": "en", "target": "de", "format": "html"})
            assert response.status_code in (200, 413)
    assert "characters" in error_message(
        post(address, "/translate", {"q": "<b>" * 300_000, "source": "en", "target": "de", "format": "html"}), 413
    )


@pytest.mark.parametrize("text", ["U.K. " * 4000, "A.B." * 5000, "babo. " * 3000, "\u0301" * 5_000])
def test_texts_that_take_long_to_split(address: str, text: str) -> None:
    with answered_in_the_meantime(address):
        start = time.perf_counter()
        assert post(address, "/v1/translate", {"text": text, "beam": 1}).status_code in (200, 413, 503)
        assert time.perf_counter() - start < 30


def test_alternatives_of_a_very_long_output(address: str) -> None:
    body = {"text": "babo dego", "output": "bo " * 6_300, "position": 18_000}
    start = time.perf_counter()
    assert "tokens" in error_message(post(address, "/v1/alternatives", body), 400)
    assert time.perf_counter() - start < PATIENCE


def test_many_alternatives_at_once(address: str) -> None:
    body = {"text": "babo dego", "output": "bo " * 100, "position": 250, "count": 16}
    with answered_in_the_meantime(address):
        threads = [threading.Thread(target=post, args=(address, "/v1/alternatives", body)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)


def test_detection_of_very_many_texts(address: str) -> None:
    assert "allowed" in error_message(post(address, "/detect", {"q": ["babo"] * 100_000}), 413)


def test_invalid_values_in_very_large_numbers(address: str) -> None:
    with answered_in_the_meantime(address):
        assert post(address, "/v1/translate", {"text": [0] * 300_000}).status_code == 400
        for keys, status in ((15_000, 400), (60_000, 413)):
            assert post(address, "/v1/translate", {f"x{n}": 0 for n in range(keys)}).status_code == status
        assert post(address, "/inspect/look", {"text": "babo", "prefix": ["x"] * 150_000}).status_code == 400


def test_a_temperature_that_no_score_can_be_divided_by(address: str) -> None:
    body = {"text": "babo", "sample": True, "temperature": 1e-320}
    assert "temperature" in error_message(post(address, "/v1/translate", body), 400)
    assert post(address, "/v1/translate", body | {"temperature": 0.001}).status_code == 200


def test_forms_of_other_sites_are_refused(translator: Translator, tmp_path: Path) -> None:
    file = tmp_path / "suggestions.jsonl"
    fields = {"q": "babo", "s": "gabe", "source": "en", "target": "de"}
    with serve_in_thread([("en-de", translator)], suggestions=file) as (address, _):
        url = f"{address}/suggest"
        for headers in (
            {"origin": "https://elsewhere.example"},
            {"origin": "null"},
            {"origin": "http://127.0.0.1:1"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site", "origin": address},
        ):
            assert "site" in error_message(httpx.post(url, data=fields, headers=headers), 403)
        assert not file.exists() or not file.read_text()
        for headers in ({"origin": address}, {"sec-fetch-site": "same-origin", "origin": "https://proxy.example"}, {}):
            assert httpx.post(url, data=fields, headers=headers).json() == {"success": True}
        assert len(file.read_text().splitlines()) == 3
        long = fields | {"source": "x" * 30_000}
        assert "allowed" in error_message(httpx.post(url, data=long), 413)
        assert "language" in error_message(httpx.post(url, data=fields | {"source": "not a code"}), 400)


def test_a_client_that_has_nothing_more_to_send_is_answered(address: str) -> None:
    body = json.dumps({"text": "babo dego"}).encode()
    for version in (b"HTTP/1.1", b"HTTP/1.0"):
        with socket.create_connection(host_and_port(address), timeout=TIMEOUT) as connection:
            head = request_head("/v1/translate", len(body)).replace(b"HTTP/1.1", version)
            connection.sendall(head + body)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while more := connection.recv(65_536):
                received += more
        final = received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert raw_status(final) == 200, received
        assert b"outputs" in final


STUCK = """
import time
from transduce.serve import server
from transduce.serve.scheduler import Scheduler
Scheduler._step = lambda *arguments: time.sleep(1000)
server.SHUTDOWN_SECONDS = 1.0
"""
"""Python code that stops the scheduler forever in its first step."""


@pytest.mark.parametrize("signals", [1, 2])
def test_a_server_that_is_stuck_ends(transduce: Any, trained: Any, tmp_path: Path, signals: int) -> None:
    before = STUCK if signals == 1 else STUCK.replace("1.0", "1000.0")
    with ServerProcess("-m", f"toy={trained.run}", log=tmp_path / "log", start=transduce.background, before=before) as (
        server
    ):
        threading.Thread(target=_ignore_errors, args=(server.address,)).start()
        while not server.metric("transduce_running_sentences"):
            time.sleep(0.05)
        for _ in range(signals):
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        start = time.monotonic()
        server.process.wait(TIMEOUT)
        assert time.monotonic() - start < (8 if signals == 1 else 1)


def _ignore_errors(address: str) -> None:
    with suppress(httpx.HTTPError):
        post(address, "/v1/translate", {"text": "babo"})


def test_health_tells_that_translation_makes_no_progress(transduce: Any, trained: Any, tmp_path: Path) -> None:
    before = STUCK + "\nfrom transduce.serve import app; app.STALLED_SECONDS = 0.5\n"
    with ServerProcess("-m", f"toy={trained.run}", log=tmp_path / "log", start=transduce.background, before=before) as (
        server
    ):
        assert httpx.get(f"{server.address}/health").status_code == 200
        threading.Thread(target=_ignore_errors, args=(server.address,)).start()
        while not server.metric("transduce_running_sentences"):
            time.sleep(0.05)
        time.sleep(0.6)
        response = httpx.get(f"{server.address}/health")
        assert "progress" in error_message(response, 503)
        assert response.headers["retry-after"]


def test_documents_leave_no_files_behind(transduce: Any, trained: Any, tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    before = f"import tempfile; tempfile.tempdir = {str(folder)!r}"
    with ServerProcess(
        "-m", f"en-de={trained.run}", log=tmp_path / "log", start=transduce.background, before=before
    ) as server:
        response = httpx.post(
            f"{server.address}/translate_file",
            files={"file": ("a.txt", b"babo dego\n" * 100)},
            data={"source": "en", "target": "de"},
        )
        assert httpx.get(response.json()["translatedFileUrl"]).status_code == 200
        server.process.kill()
        server.process.wait(TIMEOUT)
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("huge.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x06\0\0\0"),
        ("huge.wav", b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\xff\xff\xff\xff\xff\xff"),
        ("a.docx", b"PK\x03\x04" + b"\0" * 100_000),
    ],
)
def test_images_and_sounds_are_no_documents(address: str, name: str, data: bytes) -> None:
    response = httpx.post(
        f"{address}/translate_file", files={"file": (name, data)}, data={"source": "en", "target": "de"}
    )
    assert error_message(response, 400)


def test_the_folder_of_a_model_is_replaced_while_it_is_served(trained: Any, tmp_path: Path) -> None:
    """The server goes on with the model that it has loaded; it does not mix the weights of two models."""
    folder = tmp_path / "model"
    shutil.copytree(Translator.load(trained.run).any_model.path, folder)  # type: ignore[attr-defined]
    for replace in (lambda: shutil.rmtree(folder), lambda: _overwrite(folder)):
        with serve_in_thread([("toy", Translator.load(folder))]) as (address, _):
            before = post(address, "/v1/translate", {"text": "babo dego"}).json()
            replace()
            assert post(address, "/v1/translate", {"text": "babo dego"}).json() == before
            look = post(address, "/inspect/look", {"text": "babo dego"})  # builds the torch module
            assert look.status_code == 200 or "the file has changed" in error_message(look, 400)
        if not folder.exists():
            shutil.copytree(Translator.load(trained.run).any_model.path, folder)  # type: ignore[attr-defined]


def _overwrite(folder: Path) -> None:
    """Change some weights in their place."""
    (weights,) = folder.glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1000:] = bytes(1000)
    with weights.open("r+b") as file:
        file.write(content)


def test_every_connection_is_taken(trained: Any, transduce: Any, tmp_path: Path) -> None:
    """Descriptors that are not for connections are left over: the server still writes suggestions."""
    file = tmp_path / "suggestions.jsonl"
    before = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))"
    with (
        ServerProcess(
            "-m",
            f"toy={trained.run}",
            "--suggestions",
            file,
            log=tmp_path / "log",
            start=transduce.background,
            before=before,
        ) as server,
        httpx.Client(base_url=server.address, timeout=TIMEOUT) as client,
    ):
        fields = {"q": "babo", "s": "gabe", "source": "en", "target": "de"}
        assert client.post("/suggest", data=fields).status_code == 200
        connections = [socket.create_connection(host_and_port(server.address)) for _ in range(200)]
        assert client.post("/suggest", data=fields).status_code == 200
        assert client.post("/v1/translate", json={"text": "babo"}).status_code == 200
        for connection in connections:
            connection.close()
    assert len(file.read_text().splitlines()) == 2

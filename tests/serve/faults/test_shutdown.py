"""The server at shutdown: it finishes the requests that it has accepted."""

import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fault_injection import repetitions
from serving import TIMEOUT, ServerProcess, host_and_port, request_head, wait_until

LINES = repetitions(40, 1000)
LARGE = [
    word for limit in ("seconds=600", "characters=1000000", "output_tokens=10000000") for word in ("--limit", limit)
]
"""Limits that allow a request with `LINES` lines and a beam of 16."""
STEPS_WAIT_FOR = """
import os, signal, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from transduce.serve.scheduler import Scheduler
real = Scheduler._step
def step(*arguments):
    while not os.path.exists({path!r}):
        time.sleep(0.01)
    real(*arguments)
Scheduler._step = step
"""
"""Python code that stops the scheduler before its first step until a file exists; `nohup` would ignore SIGHUP."""


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
        with socket.create_connection(host_and_port(server.address)) as connection:
            connection.sendall(request_head("/v1/translate", len(body)) + body)
            wait_until(lambda: server.metric("transduce_running_sentences") > 0)
            for _ in range(2):
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
            assert server.process.wait(TIMEOUT) is not None

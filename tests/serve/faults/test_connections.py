"""Clients that are slow, that disconnect, and that open too many connections."""

import json
import random
import socket
import time
from pathlib import Path
from typing import Any

import httpx
from fault_injection import repetitions
from serving import (
    TIMEOUT,
    ServerProcess,
    host_and_port,
    metric_value,
    raw_status,
    request_head,
    send_raw,
    serve_in_thread,
    wait_until,
)

from transduce.translation.translator import Translator

DISCONNECTS = repetitions(20, 200)


def test_the_connection_of_a_slow_client_is_closed(address: str, translator: Translator) -> None:
    body = b'{"text": "babo"}'
    with serve_in_thread([("toy", translator)], receive_seconds=0.3) as (impatient, _):
        slow_body = send_raw(impatient, request_head("/v1/translate", 10_000), *[body] * 6, pause=0.1)
        assert raw_status(slow_body) == 408
        slow_head = send_raw(impatient, *[bytes([byte]) for byte in b"POST /v"], pause=0.1)
        assert slow_head == b""  # closed without a response: there was no request yet
    endless_head = send_raw(address, b"GET / HTTP/1.1\r\n", *[b"X: " + b"a" * 8000 + b"\r\n"] * 20)
    assert raw_status(endless_head or b" 431") in (400, 431)
    in_time = send_raw(
        address, request_head("/v1/translate", len(body)), *[body[n : n + 4] for n in range(0, 16, 4)], pause=0.05
    )
    assert raw_status(in_time) == 200


def test_too_many_connections_are_one_line_and_later_ones_are_accepted(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    descriptors = 100
    before = f"""
import resource
from transduce.serve import server
resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))
server._RETRY_SECONDS = 0.2
"""
    arguments = ["-m", f"toy={trained.run}"]
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background, before=before) as server:
        connections = [socket.create_connection(host_and_port(server.address)) for _ in range(2 * descriptors)]
        light = {"url": f"{server.address}/v1/translate", "json": {"text": "babo"}, "timeout": TIMEOUT}
        assert httpx.post(**light).status_code == 200  # idle connections make room
        assert server.stderr.count("idle connections are closed for new ones: 68 are open") == 1
        for connection in connections:
            connection.close()
        connections = []
        for _ in range(descriptors):
            connections.append(socket.create_connection(host_and_port(server.address)))
            connections[-1].sendall(request_head("/v1/translate", 100))  # its body does not come
            time.sleep(0.03)  # the server reads it
        wait_until(lambda: "no connections are accepted" in server.stderr)
        time.sleep(0.6)  # it tries again several times
        for connection in connections:
            connection.close()
        assert httpx.post(**light).status_code == 200
        lines = [line for line in server.stderr.splitlines() if "no connections are accepted" in line]
        assert lines[0].endswith("no connections are accepted until others end: Too many open files")
        assert len(lines) <= 2  # perhaps again while the connections are closed
        assert "Traceback" not in server.stderr


def test_requests_of_disconnected_clients_are_dropped(translator: Translator) -> None:
    with serve_in_thread([("toy", translator)], seconds=600) as (address, app):
        text = "\n".join(["babo dego gibo dedu gigo"] * 600)

        def disconnect(seed: int) -> None:
            body = json.dumps({"text": text, "stream": seed % 2 == 0}).encode()
            with socket.create_connection(host_and_port(address)) as connection:
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

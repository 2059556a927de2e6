"""Limits, keys, hosts and monitoring of the server."""

import logging
import time
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from serving import INSPECT, TIMEOUT, error_message, events, metric_value, serve_in_thread

from transduce.serve.server import allowed_hosts
from transduce.translation.translator import Translator


@pytest.mark.parametrize("key", [None, "", "fremd", "open sesam"])
def test_without_a_key_nothing_is_translated(guarded: httpx.Client, key: str | None) -> None:
    body = {"q": "babo", "source": "en", "target": "de", "api_key": key}
    assert "API key" in error_message(guarded.post("/translate", json=body), 403)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    assert "API key" in error_message(guarded.post("/v1/translate", json={"text": "babo"}, headers=headers), 403)


def test_a_key_is_accepted_by_both_interfaces(guarded: httpx.Client) -> None:
    headers = {"Authorization": "Bearer open sesame"}
    body = {"q": "babo", "source": "en", "target": "de"}
    assert guarded.post("/translate", json=body | {"api_key": "friend"}).status_code == 200
    assert guarded.post("/translate", json=body, headers=headers).status_code == 200
    assert guarded.post("/v1/translate", json={"text": "babo"}, headers=headers).status_code == 200
    assert guarded.get("/health").status_code == guarded.get("/languages").status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"text": "b" * 101}, 413, "101 characters are more than the 100 allowed"),
        ({"text": ["b" * 60, "b" * 60]}, 413, "120 characters"),
        ({"text": "babo", "prefix": "b" * 100}, 413, "104 characters"),
        ({"text": "b\n" * 5}, 413, "6 sentences are more than the 5 allowed"),
        ({"text": [""] * 6}, 413, "sentences"),
        ({"text": "babo", "beam": 4}, 400, "beam must be at most 3"),
        ({"text": "babo", "nbest": 3}, 400, "nbest must be at most 2"),
        ({"text": "babo", "max_extra": 11}, 400, "max_extra must be at most 10"),
        ({"text": "babo\n" * 4, "beam": 3}, 413, "4 sentences with 3 hypotheses each may need "),
        ({"text": "babo" * 500}, 413, "the body is larger than the 2,000 bytes allowed"),
    ],
)
def test_limits_are_enforced(guarded: httpx.Client, body: Any, status: int, message: str) -> None:
    response = guarded.post("/v1/translate", json=body, headers={"Authorization": "Bearer friend"})
    assert message in error_message(response, status)


def test_a_request_that_takes_too_long_is_dropped(translator: Translator) -> None:
    with serve_in_thread([("toy", translator)], seconds=0.001) as (address, _):
        long = {"text": "\n".join(["babo dego"] * 500)}
        assert "not finished within" in error_message(httpx.post(f"{address}/v1/translate", json=long), 503)
        streamed = httpx.post(f"{address}/v1/translate", json=long | {"stream": True})
        assert events(streamed.text)[-1][0] == "error"
        dropped = metric_value(httpx.get(f"{address}/metrics").text, "transduce_dropped_sentences_total")
        assert dropped > 0


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:5000", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_dns_rebinding_is_prevented(client: Any, guarded: Any, host: str) -> None:
    for path in ("/", "/languages", INSPECT, "/v1/translate"):
        method = "POST" if path in (INSPECT, "/v1/translate") else "GET"
        response = client.request(method, path, json={"text": "babo"}, headers={"host": host})
        assert "only accepts requests to localhost" in error_message(response, 421)
    assert guarded.get("/languages", headers={"host": host}).status_code == 200  # API keys prevent it


@pytest.mark.parametrize("host", ["localhost", "LocalHost:1", "127.0.0.1:5000", "[::1]", "[::1]:80"])
def test_all_names_of_this_machine_are_accepted(client: httpx.Client, host: str) -> None:
    assert client.get("/languages", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("bound", "given", "hosts"),
    [
        ("127.0.0.1", "localhost", {"localhost", "127.0.0.1", "[::1]"}),
        ("127.0.1.1", "Own-Name", {"localhost", "127.0.0.1", "[::1]", "127.0.1.1", "own-name"}),
        ("::1", "::1", {"localhost", "127.0.0.1", "[::1]"}),
        ("0.0.0.0", "0.0.0.0", None),
        ("::", "::", None),
        ("192.168.1.2", "192.168.1.2", None),
    ],
)
def test_hosts_are_only_checked_if_the_server_is_local(bound: str, given: str, hosts: Any) -> None:
    listening: Any = SimpleNamespace(getsockname=lambda: (bound, 5000))
    assert allowed_hosts(listening, given) == hosts


def test_neither_texts_nor_keys_are_logged(guarded: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"q": "babo secret", "source": "en", "target": "de"}
    guarded.post("/translate?q=secret&api_key=friend", json=body | {"api_key": "friend"})
    guarded.post("/translate", json=body | {"api_key": "secret"})
    guarded.post("/v1/translate", json={"secret": 1}, headers={"Authorization": "Bearer friend"})
    guarded.get("/secret")
    deadline = time.monotonic() + TIMEOUT
    lines: list[str] = []
    while not any(line.startswith("other 404 ") for line in lines):  # logged after the response is sent
        assert time.monotonic() < deadline
        lines = [record.getMessage() for record in caplog.records if not record.name.startswith("http")]
    assert any(line.startswith("/translate 200 ") for line in lines)
    assert not [line for line in lines if "secret" in line or "friend" in line]


# Monitoring


def test_health_readiness_and_counters(client: httpx.Client) -> None:
    before = metric_value(client.get("/metrics").text, "transduce_requests_total", path="/translate", status="200")
    client.post("/translate", json={"q": "babo\ndego", "source": "en", "target": "de"})
    metrics = client.get("/metrics").text
    assert metric_value(metrics, "transduce_requests_total", path="/translate", status="200") == before + 1
    assert metric_value(metrics, "transduce_waiting_requests") == 0
    assert metric_value(metrics, "transduce_running_sentences") == 0
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}


def test_unknown_paths_have_error_responses_of_the_same_form(client: httpx.Client) -> None:
    error_message(client.get("/nothing"), 404)
    error_message(client.get("/v1/translate"), 405)
    error_message(client.get("/docs"), 404)  # it would load scripts from other servers


def test_the_openapi_description_has_examples_and_every_route(client: httpx.Client) -> None:
    description = client.get("/openapi.json").json()
    routes = {"/translate", "/languages", "/v1/translate", "/health", "/ready", "/metrics"}
    routes |= {"/v1/alternatives", "/v1/translators", INSPECT, "/inspect/reference", "/inspect/head"}
    assert routes <= description["paths"].keys()
    content = description["paths"]["/translate"]["post"]["requestBody"]["content"]
    assert content.keys() == {"application/json", "application/x-www-form-urlencoded", "multipart/form-data"}
    example = content["application/json"]["schema"]["example"]
    assert client.post("/translate", json=example).status_code == 200
    for path in ("/v1/translate", "/v1/alternatives"):
        content = description["paths"][path]["post"]["requestBody"]["content"]
        example = content["application/json"]["schema"]["example"]
        assert client.post(path, json=example).status_code == 200

"""Inspections over HTTP."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import httpx
import pytest
from serving import INSPECT, TIMEOUT, error_message, serve_in_thread

from transduce.inspect import inspection
from transduce.translation.translator import Translator


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text": 5}, "text: Input should be a valid string"),
        ({"text": "babo", "beam": "x"}, "beam: Input should be a valid integer"),
        ({}, "text: Field required"),
        (b"{", "JSON decode error"),
    ],
)
def test_an_invalid_inspection_request_is_answered_with_the_reason(
    client: httpx.Client, body: Any, message: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body)
    response = client.post(INSPECT, content=content, headers={"content-type": "application/json"})
    assert message in error_message(response, 400)


@pytest.fixture
def may_finish(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Inspections do not finish before this is set."""
    inspect_translation, may_finish = inspection.inspect_translation, threading.Event()

    def wait_and_inspect(*args: Any) -> Any:
        assert may_finish.wait(TIMEOUT)
        return inspect_translation(*args)

    monkeypatch.setattr(inspection, "inspect_translation", wait_and_inspect)
    yield may_finish
    may_finish.set()


def request_inspection(address: str, timeout: Any = TIMEOUT) -> httpx.Response:
    return httpx.post(f"{address}{INSPECT}", json={"text": "babo"}, timeout=timeout)


def test_only_few_requests_may_wait_for_an_inspection(translator: Translator, may_finish: threading.Event) -> None:
    with serve_in_thread([("toy", translator)]) as (address, _), ThreadPoolExecutor(10) as pool:
        futures = [pool.submit(request_inspection, address) for _ in range(10)]  # one is running, eight wait
        first = next(as_completed(futures, timeout=TIMEOUT)).result()
        may_finish.set()
        assert "too many inspections are waiting" in error_message(first, 429)
        assert first.headers["retry-after"] == "1"
        assert sorted(future.result().status_code for future in futures) == [200] * 9 + [429]


def test_requests_of_disconnected_clients_do_not_count_as_waiting(
    translator: Translator, may_finish: threading.Event
) -> None:
    def waits(address: str) -> bool:
        """Whether a request waits until the client disconnects; otherwise it is rejected."""
        try:
            error_message(request_inspection(address, timeout=httpx.Timeout(TIMEOUT, read=0.3)), 429)
        except httpx.ReadTimeout:
            return True
        return False

    with serve_in_thread([("toy", translator)]) as (address, _), ThreadPoolExecutor(9) as pool:
        assert all(pool.map(waits, [address] * 9))
        deadline = time.monotonic() + TIMEOUT
        while not waits(address):  # the server may not have noticed the disconnects yet
            assert time.monotonic() < deadline
        may_finish.set()


def test_an_inspection_that_waits_too_long_is_rejected(translator: Translator, may_finish: threading.Event) -> None:
    with (
        serve_in_thread([("toy", translator)], seconds=0.2, receive_seconds=2 * TIMEOUT) as (address, _),
        ThreadPoolExecutor(2) as pool,
    ):
        futures = [pool.submit(request_inspection, address) for _ in range(2)]
        first = next(as_completed(futures, timeout=TIMEOUT)).result()
        may_finish.set()
        assert "not finished within 0.2 s" in error_message(first, 503)

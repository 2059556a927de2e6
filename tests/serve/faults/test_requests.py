"""Requests generated from the OpenAPI description, malicious bodies and unusual text."""

from collections import Counter
from typing import Any

import httpx
import pytest
import schemathesis
from fault_injection import repetitions
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS
from serving import TIMEOUT, raw_status, request_head, send_raw

CASES = repetitions(40, 10_000)
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)


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
    assert raw_status(response) == 413
    assert raw_status(send_raw(address, request_head("/translate", 10**15))) == 413


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


@pytest.mark.parametrize("text", ["\1", "\ue011", "\u2581", "\u202e", "\r\r", "\u2028", "🏴" * 500, "́" * 1000])
def test_unusual_characters_are_translated(address: str, text: str) -> None:
    for path, body in (("/v1/translate", {"text": text}), ("/translate", {"q": text, "source": "en", "target": "de"})):
        response = httpx.post(f"{address}{path}", json=body, timeout=TIMEOUT)
        assert response.status_code == 200, response.text

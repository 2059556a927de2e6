"""The HTTP interface of the server."""

import json
import logging
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from helpers import small_model
from serving import TIMEOUT, ServerProcess, metric_value, serve_in_thread

from transduce.inspect import inspection
from transduce.serve.server import allowed_hosts
from transduce.translator import Translator

INSPECT = "/inspect/look"


@pytest.fixture(scope="module")
def translator(trained: Any) -> Translator:
    return Translator.load(trained.run)


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[httpx.Client]:
    with serve_in_thread([("en-de", translator), ("toy", translator)]) as (address, _):
        yield from connected(address)


def connected(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=TIMEOUT) as client:
        yield client


@pytest.fixture(scope="module")
def guarded(translator: Translator) -> Iterator[httpx.Client]:
    """A server with API keys and low limits."""
    limits = {
        "characters": 100,
        "sentences": 5,
        "beam": 3,
        "nbest": 2,
        "max_extra": 10,
        "body_bytes": 2000,
        "output_tokens": 600,
    }
    with serve_in_thread([("en-de", translator)], keys=["open sesame", "friend"], **limits) as (address, _):
        yield from connected(address)


def error_message(response: httpx.Response, status: int) -> str:
    """The message of an error response with this status."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json().keys() == {"error"}
    return response.json()["error"]


TEXTS = ["babo dego", "gibo", "", "dedu gigo babo"]


# LibreTranslate's interface


def test_a_text_is_translated(client: httpx.Client, translator: Translator) -> None:
    body = {"q": TEXTS[0], "source": "en", "target": "de", "format": "text", "api_key": ""}
    expected = {"translatedText": translator.translate(TEXTS[0])}
    assert client.post("/translate", json=body).json() == expected
    assert client.post("/translate", data=body).json() == expected
    assert client.post("/translate", files={name: (None, value) for name, value in body.items()}).json() == expected


@pytest.mark.parametrize(("content", "status"), [("q=Müller, é &source=en&target=de".encode(), 200), (b"q=\xff", 400)])
def test_a_form_is_raw_or_percent_encoded_utf8(client: Any, content: bytes, status: int) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    response = client.post("/translate", content=content, headers=headers)
    assert response.status_code == status
    if status == 200:
        expected = client.post("/translate", json={"q": "Müller, é ", "source": "en", "target": "de"})
        assert response.json() == expected.json()


def test_a_list_of_texts_is_answered_with_a_list(client: httpx.Client, translator: Translator) -> None:
    response = client.post("/translate", json={"q": TEXTS, "source": "en", "target": "de"}).json()
    assert response == {"translatedText": translator.translate(TEXTS)}
    form = client.post("/translate", data={"q": TEXTS, "source": "en", "target": "de"}).json()
    assert form == response
    assert client.post("/translate", json={"q": [], "source": "en", "target": "de"}).json() == {"translatedText": []}


def test_lines_are_translated_separately(client: httpx.Client, translator: Translator) -> None:
    response = client.post("/translate", json={"q": "\n".join(TEXTS), "source": "en", "target": "toy"}).json()
    assert response["translatedText"].split("\n") == translator.translate(TEXTS)


def test_alternatives_are_the_next_best_hypotheses(client: httpx.Client, translator: Translator) -> None:
    body = {"source": "en", "target": "de", "alternatives": 3}
    best = [[one.text for one in hypotheses] for hypotheses in translator.hypotheses(TEXTS[:2], nbest=4)]
    distinct = [list(dict.fromkeys(texts)) for texts in best]
    one = client.post("/translate", json={"q": TEXTS[0], **body}).json()
    assert one == {"translatedText": distinct[0][0], "alternatives": distinct[0][1:]}
    two = client.post("/translate", json={"q": TEXTS[:2], **body}).json()
    assert two["alternatives"] == [texts[1:] for texts in distinct]


def test_more_alternatives_than_the_beam_widen_the_beam(client: httpx.Client) -> None:
    body = {"q": TEXTS[0], "source": "en", "target": "de", "alternatives": 9}
    assert 4 < len(client.post("/translate", json=body).json()["alternatives"]) <= 9


def test_html_keeps_its_tags(client: httpx.Client, translator: Translator) -> None:
    body = {"q": "<p>babo <b>gibo</b></p>", "source": "en", "target": "de", "format": "html", "alternatives": 1}
    response = client.post("/translate", json=body).json()
    best, second = translator.hypotheses(["babo gibo"], nbest=2)[0]
    for output, translation in zip(
        [response["translatedText"], response["alternatives"][0]], [best, second], strict=True
    ):
        assert re.fullmatch(r"<p>.*<b>.*</b>.*</p>", output)
        assert re.sub(r"<.*?>", "", output) == translation.text


def test_only_texts_with_inline_tags_are_aligned(
    client: httpx.Client, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[list[str], bool]] = []
    original = Translator.translations

    def record(self: Translator, jobs: Any, results: Any, config: Any, align: bool, *more: Any) -> Any:
        calls.append(([self.tokenizer.decode(job.tokens) for job in jobs], align))
        return original(self, jobs, results, config, align, *more)

    monkeypatch.setattr(Translator, "translations", record)
    body = {"q": ["<p>babo <b>gibo</b></p><p>dego</p>", "dedu"], "source": "en", "target": "de", "format": "html"}
    assert client.post("/translate", json=body).status_code == 200
    assert sorted(text for texts, align in calls if align for text in texts) == ["babo gibo"]
    assert sorted(text for texts, align in calls if not align for text in texts) == ["dedu", "dego"]


def test_the_source_language_may_be_auto(client: httpx.Client) -> None:
    response = client.post("/translate", json={"q": "babo", "source": "auto", "target": "de"}).json()
    assert response["detectedLanguage"]["language"] == "en"  # the only source language
    assert 0 <= response["detectedLanguage"]["confidence"] <= 100


def test_the_languages_are_listed(client: httpx.Client) -> None:
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "auto", "name": "auto", "targets": ["toy"]},
        {"code": "de", "name": "German", "targets": []},
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"source": "en", "target": "de"}, "q: Field required"),
        ({"q": "babo", "target": "de"}, "source: Field required"),
        ({"q": 5, "source": "en", "target": "de"}, "q"),
        ({"q": "babo", "source": "en", "target": "de", "format": "pdf"}, "format: Input should be 'text' or 'html'"),
        ({"q": "babo", "source": "en", "target": "de", "alternatives": -1}, "alternatives: "),
        ({"q": "babo", "source": "en", "target": "de", "alternatives": 10**9}, "nbest must be at most 16"),
        ([], "Input should be"),
    ],
)
def test_an_invalid_libretranslate_request_is_answered_with_the_reason(
    client: httpx.Client, body: Any, message: str
) -> None:
    assert message in error_message(client.post("/translate", json=body), 400)


def test_an_unsupported_content_type_is_rejected(client: httpx.Client) -> None:
    assert "application/json" in error_message(client.post("/translate", content=b"q=babo"), 415)


def test_languages_without_a_model_are_rejected(guarded: httpx.Client) -> None:
    body = {"q": "babo", "source": "fr", "target": "de", "api_key": "friend"}
    assert "available: en to de" in error_message(guarded.post("/translate", json=body), 400)


# The v1 interface


def test_outputs_have_scores_tokens_and_alignments(client: httpx.Client, translator: Translator) -> None:
    texts = [text for text in TEXTS if text]
    response = client.post("/v1/translate", json={"text": texts, "nbest": 3, "align": True, "beam": 5}).json()
    expected = translator.hypotheses(texts, nbest=3, beam=5, align=True)
    assert response["model"] == "en-de"
    for text, got, best in zip(texts, response["translations"], expected, strict=True):
        assert got["source_tokens"] == translator.source_tokens(text)
        for mine, theirs in zip(got["outputs"], best, strict=True):
            assert (mine["text"], mine["tokens"], mine["alignment"]) == (theirs.text, theirs.tokens, theirs.alignment)
            assert mine["score"] == pytest.approx(theirs.score, abs=1e-4)
            assert mine["log_prob"] == pytest.approx(theirs.log_prob, abs=1e-4)


def test_no_repeat_blocks_repeated_ngrams(client: httpx.Client, translator: Translator) -> None:
    response = client.post("/v1/translate", json={"text": TEXTS[:2], "no_repeat": 1}).json()
    texts = [one["outputs"][0]["text"] for one in response["translations"]]
    assert texts == translator.translate(TEXTS[:2], no_repeat=1)


def test_the_same_seed_gives_the_same_samples(client: httpx.Client) -> None:
    def sample(seed: int) -> Any:
        body = {"text": TEXTS, "sample": True, "nbest": 5, "seed": seed, "temperature": 1.5}
        return client.post("/v1/translate", json=body).json()["translations"]

    assert sample(1) == sample(1) != sample(2)


def test_the_output_begins_with_the_prefix(client: httpx.Client) -> None:
    response = client.post("/v1/translate", json={"text": TEXTS[0], "prefix": "gogo"}).json()
    assert response["translations"][0]["outputs"][0]["text"].startswith("gogo")


def events(stream: str) -> list[tuple[str, Any]]:
    """Parse server-sent events."""
    parsed = []
    for block in stream.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        parsed.append((fields["event"], json.loads(fields["data"])))
    return parsed


def test_sentences_are_streamed_as_they_are_finished(client: httpx.Client, translator: Translator) -> None:
    texts = ["\n".join(TEXTS), "dedu"]
    body = {"text": texts, "stream": True, "nbest": 2}
    with client.stream("POST", "/v1/translate", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        *sentences, last = events(response.read().decode())
    assert last == ("done", {})
    assert {kind for kind, _ in sentences} == {"sentence"}
    got = {(event["text"], event["line"]): [one["text"] for one in event["outputs"]] for _, event in sentences}
    best = [[one.text for one in hypotheses] for hypotheses in translator.hypotheses([*TEXTS, "dedu"], nbest=2)]
    assert got == dict(zip([(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)], best, strict=True))


def test_the_first_sentence_is_sent_before_the_last_is_finished(translator: Translator) -> None:
    with serve_in_thread([("toy", translator)], seconds=600) as (address, _):
        body = {"text": "\n".join(["babo dego gibo"] * 900), "stream": True}
        with httpx.stream("POST", f"{address}/v1/translate", json=body, timeout=TIMEOUT) as response:
            next(response.iter_lines())
            done = metric_value(httpx.get(f"{address}/metrics").text, "transduce_sentences_total")
            assert done < 900


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text": "babo", "model": "fr"}, "no such model; available: en-de, toy"),
        ({"text": "babo", "beem": 4}, "beem: Extra inputs are not permitted"),
        ({"text": "babo", "beam": 17}, "beam must be at most 16"),
        ({"text": "babo", "nbest": 10**9}, "nbest must be at most 16"),
        ({"text": "babo", "max_extra": 10**12}, "max_extra must be at most 200"),
        (
            {"text": "babo", "beam": 2, "nbest": 3},
            "nbest must be at most beam unless sample is set, but nbest is 3 and beam is 2",
        ),
        ({"text": "babo", "beam": "4"}, "beam: Input should be a valid integer"),
        ({"text": "babo", "temperature": -1}, "temperature must be between 0 and 1000"),
        ({"text": "babo", "max_length": 1001}, "max_length must be at most 1000"),
        ({"text": "babo", "prefix": "babo " * 1000}, "the prefix has more than the 256 tokens"),
    ],
)
def test_an_invalid_v1_request_is_answered_with_the_reason(client: httpx.Client, body: Any, message: str) -> None:
    assert message in error_message(client.post("/v1/translate", json=body), 400)


def test_a_prefix_longer_than_the_learned_positions_is_rejected(toy_tokenizer: Any) -> None:
    model = small_model(0, toy_tokenizer.vocab_size, positions="learned").eval()
    with serve_in_thread([("toy", Translator(model, toy_tokenizer))]) as (address, _):
        response = httpx.post(f"{address}/v1/translate", json={"text": "babo", "prefix": "x" * 100})
        assert "more than the 63 this model can generate" in error_message(response, 400)


@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_device_is_an_internal_error_and_the_server_continues(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    class BrokenSession(type(translator.engine.start_session(translator.config))):  # type: ignore[misc]
        def step(self) -> Any:
            raise RuntimeError("secret")

    with serve_in_thread([("toy", translator)]) as (address, _):
        with monkeypatch.context() as patch:
            patch.setattr(
                translator.engine,
                "start_session",
                lambda config: BrokenSession(translator.engine, config),
                raising=False,
            )
            response = httpx.post(f"{address}/v1/translate", json={"text": "babo", "stream": stream})
        if stream:
            assert events(response.text) == [("error", {"error": "internal error"})]
        else:
            assert error_message(response, 500) == "internal error"
        assert httpx.get(f"{address}/health").status_code == 200
        assert httpx.post(f"{address}/v1/translate", json={"text": "babo"}).status_code == 200


# Inspection


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
            error_message(request_inspection(address, timeout=httpx.Timeout(TIMEOUT, read=1.0)), 429)
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
    with serve_in_thread([("toy", translator)], seconds=0.2) as (address, _), ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(request_inspection, address) for _ in range(2)]
        first = next(as_completed(futures, timeout=TIMEOUT)).result()
        may_finish.set()
        assert "not finished within 0.2 s" in error_message(first, 503)


# Sentences and alternatives


def test_sentences_join_to_the_translation(client: httpx.Client, translator: Translator, toy_pairs: Any) -> None:
    lines = [source for source, _ in toy_pairs[:3]]
    body = {"text": "\n".join([lines[0], "", *lines[1:]]), "sentences": True, "confidence": "words"}
    answer = client.post("/v1/translate", json=body).json()["translations"][0]
    sentences = answer["sentences"]
    assert [sentence["source"] for sentence in sentences] == [lines[0], "", *lines[1:]]
    assert [sentence["line"] for sentence in sentences] == [0, 1, 2, 3]
    assert "\n".join(sentence["text"] + sentence["after"] for sentence in sentences) == answer["outputs"][0]["text"]
    for sentence in sentences:
        words = sentence["word_confidences"] or []
        assert len(words) == len(sentence["text"].split())
        assert all(0 <= word <= 1 for word in words)
    assert client.post("/v1/translate", json={"text": lines[0]}).json()["translations"][0]["sentences"] is None


def test_alternatives_begin_with_the_words_before(client: httpx.Client) -> None:
    body = {"text": "gibo bago gigo", "output": "gigo bago gibo", "position": 5, "count": 4}
    answer = client.post("/v1/alternatives", json=body).json()
    found = answer["alternatives"]
    assert 1 < len(found) <= 4
    assert answer["before"].strip() == "gigo"
    assert [one["probability"] for one in found] == sorted((one["probability"] for one in found), reverse=True)
    for one in found:
        assert one["text"].startswith(f"gigo {one['word']}")
        assert one["probability"] == one["word_confidences"][1]
        forced = client.post(INSPECT, json={"text": body["text"], "prefix": one["prefix"]})
        assert one["text"].encode() in forced.content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": 99}, "position 99 is not in the output, which has 4 characters"),
        ({"text": ""}, "the text is empty"),
        ({"text": "ba " * 500}, "tokens; the model takes"),
        ({"count": 17}, "count"),
        ({"model": "none"}, "no such model"),
    ],
)
def test_an_invalid_request_for_alternatives_is_answered_with_the_reason(
    client: httpx.Client, change: dict[str, Any], message: str
) -> None:
    body = {"text": "babo", "output": "gigo", "position": 0, **change}
    assert message in error_message(client.post("/v1/alternatives", json=body), 400)


# Concurrency


def test_every_client_gets_its_own_translation(client: httpx.Client, translator: Translator, toy_pairs: Any) -> None:
    texts = [source for source, _ in toy_pairs[:60]]
    expected = translator.translate(texts)

    def is_correct(index: int) -> bool:
        options = {"beam": 2} if index % 3 == 0 else {}
        response = client.post("/v1/translate", json={"text": texts[index], **options}).json()
        text = response["translations"][0]["outputs"][0]["text"]
        return text == (translator.translate(texts[index], beam=2) if options else expected[index])

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(is_correct, range(60)))


# Limits and keys


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


# The command line


def test_a_command_line_error_is_one_line(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("")
    for arguments, message in [
        (["-m", "nothing"], "nothing: no such folder"),
        (["-m", "run", "--limit", "beems=4"], "unknown key beems"),
        (["-m", "run", "--limit", "queue=0"], "queue must be above 0"),
        (["-m", "run", "-m", "run"], "two models are named run"),
        (["-m", "run", "--keys", str(tmp_path / "keys")], "contains no API key"),
        (["-m", "run", "--keys", "missing"], "missing"),
        (["-m", "run", "--host", "256.0.0.1"], "cannot listen on 256.0.0.1"),
    ]:
        outcome = transduce("serve", *arguments, cwd=trained.folder)
        assert outcome.code == 2, (arguments, outcome)
        assert outcome.err.startswith("transduce: ")
        assert message in outcome.err
        assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("value", ["", " \n"])
def test_an_environment_variable_without_keys_does_not_open_the_server(
    transduce: Any, trained: Any, value: str
) -> None:
    before = f"import os; os.environ['TRANSDUCE_API_KEYS'] = {value!r}"
    outcome = transduce("serve", "-m", "run", "--port", "0", before=before, cwd=trained.folder)
    message = "transduce: TRANSDUCE_API_KEYS contains no API key; unset it to serve without keys\n"
    assert (outcome.code, outcome.err) == (2, message)


def test_without_the_extra_the_error_names_the_package_to_install(trained: Any) -> None:
    code = "import sys; sys.modules['fastapi'] = None; sys.argv = ['transduce', 'serve', '-m', 'run']; "
    code += "from transduce.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=trained.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "transduce: serving needs fastapi: pip install 'transduce[serve]'\n"


def test_the_server_needs_no_writable_file_system(transduce: Any, trained: Any, tmp_path: Path) -> None:
    """No file may be written, as on a read-only file system."""
    environment = transduce.environment | {"PYTHONDONTWRITEBYTECODE": "1"}

    def write_nothing() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    read, write = os.pipe()  # the log is a pipe because files cannot be written
    command = [sys.executable, "-m", "transduce", "serve", "--port", "0", "-m", "toy=run"]
    with subprocess.Popen(
        command, cwd=trained.folder, env=environment, stderr=write, preexec_fn=write_nothing
    ) as process:
        os.close(write)
        with os.fdopen(read) as stderr:
            address = re.search(r"http://\S+", stderr.readline())[0]
            body = {"q": (None, "babo " * 4000), "source": (None, "en"), "target": (None, "de")}
            response = httpx.post(f"{address}/translate", files=body, timeout=TIMEOUT)
            assert response.status_code == 200
            assert httpx.post(f"{address}/v1/translate", json={"text": "babo", "align": True}).status_code == 200
            process.terminate()
            assert process.wait(TIMEOUT) == 0


def test_an_ipv6_address_is_printed_as_a_valid_url(transduce: Any, trained: Any, tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    arguments = ["--host", "::1", "-m", trained.run]
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background) as server:
        assert server.address.startswith("http://[::1]:")
        assert httpx.get(f"{server.address}/health").status_code == 200
        assert httpx.get(f"{server.address}/health", headers={"host": "evil.example"}).status_code == 421


def test_several_models_are_served_by_name(transduce: Any, trained: Any, tmp_path: Path) -> None:
    arguments = ["-m", f"de={trained.run}", "-m", f"fr={trained.run}"]
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background) as server:
        assert server.address.startswith("http://127.0.0.1:")
        for name in ("de", "fr"):
            response = httpx.post(
                f"{server.address}/v1/translate", json={"text": "babo", "model": name}, timeout=TIMEOUT
            )
            assert response.json()["model"] == name
        languages = httpx.get(f"{server.address}/languages").json()
        assert [line["targets"] for line in languages] == [["de", "fr"], [], []]
        assert server.process.poll() is None

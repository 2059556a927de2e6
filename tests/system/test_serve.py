"""The server as its clients meet it."""

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
from serving import PATIENCE, ServerProcess, counted, in_thread

from transduce.inspect import routes
from transduce.serve.server import hosts_of
from transduce.translator import Translator

LOOK = "/inspect/look"


@pytest.fixture(scope="module")
def translator(trained: Any) -> Translator:
    return Translator.load(trained.run)


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[httpx.Client]:
    with in_thread([("en-de", translator), ("toy", translator)]) as (address, _):
        yield from connected(address)


def connected(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        yield client


@pytest.fixture(scope="module")
def guarded(translator: Translator) -> Iterator[httpx.Client]:
    """A server with keys and narrow limits."""
    limits = {"characters": 100, "sentences": 5, "beam": 3, "nbest": 2, "max_extra": 10, "body_bytes": 2000}
    with in_thread([("en-de", translator)], keys=["open sesame", "friend"], **limits) as (address, _):
        yield from connected(address)


def refused(answer: httpx.Response, status: int) -> str:
    """The message of a refusal."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json().keys() == {"error"}
    return answer.json()["error"]


TEXTS = ["babo dego", "gibo", "", "dedu gigo babo"]


# LibreTranslate's interface


def test_a_text_is_translated(client: httpx.Client, translator: Translator) -> None:
    wanted = {"q": TEXTS[0], "source": "en", "target": "de", "format": "text", "api_key": ""}
    expected = {"translatedText": translator.translate(TEXTS[0])}
    assert client.post("/translate", json=wanted).json() == expected
    assert client.post("/translate", data=wanted).json() == expected
    assert client.post("/translate", files={name: (None, value) for name, value in wanted.items()}).json() == expected


@pytest.mark.parametrize(("body", "status"), [("q=Müller, é &source=en&target=de".encode(), 200), (b"q=\xff", 400)])
def test_a_form_is_utf8_as_it_is_or_percent_encoded(client: Any, body: bytes, status: int) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = client.post("/translate", content=body, headers=headers)
    assert answer.status_code == status
    if status == 200:
        expected = client.post("/translate", json={"q": "Müller, é ", "source": "en", "target": "de"})
        assert answer.json() == expected.json()


def test_a_list_is_answered_by_a_list(client: httpx.Client, translator: Translator) -> None:
    answer = client.post("/translate", json={"q": TEXTS, "source": "en", "target": "de"}).json()
    assert answer == {"translatedText": translator.translate(TEXTS)}
    form = client.post("/translate", data={"q": TEXTS, "source": "en", "target": "de"}).json()
    assert form == answer
    assert client.post("/translate", json={"q": [], "source": "en", "target": "de"}).json() == {"translatedText": []}


def test_lines_are_translated_one_by_one(client: httpx.Client, translator: Translator) -> None:
    answer = client.post("/translate", json={"q": "\n".join(TEXTS), "source": "en", "target": "toy"}).json()
    assert answer["translatedText"].split("\n") == translator.translate(TEXTS)


def test_alternatives_are_the_next_best(client: httpx.Client, translator: Translator) -> None:
    wanted = {"source": "en", "target": "de", "alternatives": 3}
    best = [[one.text for one in found] for found in translator.hypotheses(TEXTS[:2], nbest=4)]
    distinct = [list(dict.fromkeys(texts)) for texts in best]
    one = client.post("/translate", json={"q": TEXTS[0], **wanted}).json()
    assert one == {"translatedText": distinct[0][0], "alternatives": distinct[0][1:]}
    two = client.post("/translate", json={"q": TEXTS[:2], **wanted}).json()
    assert two["alternatives"] == [texts[1:] for texts in distinct]


def test_more_alternatives_than_the_beam_widen_it(client: httpx.Client) -> None:
    wanted = {"q": TEXTS[0], "source": "en", "target": "de", "alternatives": 9}
    assert 4 < len(client.post("/translate", json=wanted).json()["alternatives"]) <= 9


def test_html_keeps_its_tags(client: httpx.Client, translator: Translator) -> None:
    wanted = {"q": "<p>babo <b>gibo</b></p>", "source": "en", "target": "de", "format": "html", "alternatives": 1}
    answer = client.post("/translate", json=wanted).json()
    one, two = translator.translate(["babo", "gibo"])
    assert answer["translatedText"] == f"<p>{one} <b>{two}</b></p>"
    assert re.fullmatch(r"<p>.* <b>.*</b></p>", answer["alternatives"][0])


def test_the_source_language_may_be_left_open(client: httpx.Client) -> None:
    answer = client.post("/translate", json={"q": "babo", "source": "auto", "target": "de"}).json()
    assert answer["detectedLanguage"] == {"language": "en", "confidence": 0}


def test_the_languages_are_listed(client: httpx.Client) -> None:
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "auto", "name": "auto", "targets": ["toy"]},
    ]


@pytest.mark.parametrize(
    ("wanted", "words"),
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
def test_a_bad_request_is_told_what_is_wrong(client: httpx.Client, wanted: Any, words: str) -> None:
    assert words in refused(client.post("/translate", json=wanted), 400)


def test_a_body_of_another_kind_is_refused(client: httpx.Client) -> None:
    assert "application/json" in refused(client.post("/translate", content=b"q=babo"), 415)


def test_languages_there_is_no_model_for_are_refused(guarded: httpx.Client) -> None:
    wanted = {"q": "babo", "source": "fr", "target": "de", "api_key": "friend"}
    assert "there are: en to de" in refused(guarded.post("/translate", json=wanted), 400)


# Our own interface


def test_outputs_have_scores_tokens_and_alignments(client: httpx.Client, translator: Translator) -> None:
    texts = [text for text in TEXTS if text]
    answer = client.post("/v1/translate", json={"text": texts, "nbest": 3, "align": True, "beam": 5}).json()
    expected = translator.hypotheses(texts, nbest=3, beam=5, align=True)
    assert answer["model"] == "en-de"
    for text, got, best in zip(texts, answer["translations"], expected, strict=True):
        assert got["source_tokens"] == translator.source_tokens(text)
        for mine, theirs in zip(got["outputs"], best, strict=True):
            assert (mine["text"], mine["tokens"], mine["alignment"]) == (theirs.text, theirs.tokens, theirs.alignment)
            assert mine["score"] == pytest.approx(theirs.score, abs=1e-4)
            assert mine["log_prob"] == pytest.approx(theirs.log_prob, abs=1e-4)


def test_repetition_is_guarded_against_where_asked_for(client: httpx.Client, translator: Translator) -> None:
    answer = client.post("/v1/translate", json={"text": TEXTS[:2], "no_repeat": 1}).json()
    texts = [one["outputs"][0]["text"] for one in answer["translations"]]
    assert texts == translator.translate(TEXTS[:2], no_repeat=1)


def test_what_is_drawn_at_random_is_the_same_for_the_same_seed(client: httpx.Client) -> None:
    def draw(seed: int) -> Any:
        wanted = {"text": TEXTS, "sample": True, "nbest": 5, "seed": seed, "temperature": 1.5}
        return client.post("/v1/translate", json=wanted).json()["translations"]

    assert draw(1) == draw(1) != draw(2)


def test_a_forced_beginning_is_there(client: httpx.Client) -> None:
    answer = client.post("/v1/translate", json={"text": TEXTS[0], "prefix": "gogo"}).json()
    assert answer["translations"][0]["outputs"][0]["text"].startswith("gogo")


def events(stream: str) -> list[tuple[str, Any]]:
    """Server-sent events as the specification has them."""
    found = []
    for block in stream.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields["event"], json.loads(fields["data"])))
    return found


def test_sentences_are_sent_as_they_are_done(client: httpx.Client, translator: Translator) -> None:
    texts = ["\n".join(TEXTS), "dedu"]
    wanted = {"text": texts, "stream": True, "nbest": 2}
    with client.stream("POST", "/v1/translate", json=wanted) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        *sentences, last = events(answer.read().decode())
    assert last == ("done", {})
    assert {kind for kind, _ in sentences} == {"sentence"}
    got = {(event["text"], event["line"]): [one["text"] for one in event["outputs"]] for _, event in sentences}
    best = [[one.text for one in found] for found in translator.hypotheses([*TEXTS, "dedu"], nbest=2)]
    assert got == dict(zip([(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)], best, strict=True))


def test_the_first_sentence_comes_before_the_last_is_done(translator: Translator) -> None:
    with in_thread([("toy", translator)], seconds=600) as (address, _):
        wanted = {"text": "\n".join(["babo dego gibo"] * 900), "stream": True}
        with httpx.stream("POST", f"{address}/v1/translate", json=wanted, timeout=PATIENCE) as answer:
            next(answer.iter_lines())
            done = counted(httpx.get(f"{address}/metrics").text, "transduce_sentences_total")
            assert done < 900


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"text": "babo", "model": "fr"}, "no such model; there are: en-de, toy"),
        ({"text": "babo", "beem": 4}, "beem: Extra inputs are not permitted"),
        ({"text": "babo", "beam": 17}, "beam must be at most 16"),
        ({"text": "babo", "nbest": 10**9}, "nbest must be at most 16"),
        ({"text": "babo", "max_extra": 10**12}, "max_extra must be at most 200"),
        (
            {"text": "babo", "beam": 2, "nbest": 3},
            "nbest must be at most beam unless sample is set, but nbest is 3 and beam is 2",
        ),
        ({"text": "babo", "beam": "4"}, "beam: Input should be a valid integer"),
        ({"text": "babo", "temperature": 0}, "temperature must be between 0.001 and 1000"),
        ({"text": "babo", "max_length": 1001}, "max_length must be at most 1000"),
        ({"text": "babo", "prefix": "babo " * 1000}, "the prefix has more than the 256 tokens"),
    ],
)
def test_a_bad_wish_is_told_what_is_wrong(client: httpx.Client, wanted: Any, words: str) -> None:
    assert words in refused(client.post("/v1/translate", json=wanted), 400)


def test_a_prefix_that_learnt_positions_do_not_reach_is_told_what_is_wrong(toy_tokenizer: Any) -> None:
    model = small_model(0, toy_tokenizer.vocab_size, positions="learned").eval()
    with in_thread([("toy", Translator(model, toy_tokenizer))]) as (address, _):
        answer = httpx.post(f"{address}/v1/translate", json={"text": "babo", "prefix": "x" * 100})
        assert "more than the 63 this model can generate" in refused(answer, 400)


@pytest.mark.parametrize("stream", [False, True])
def test_a_device_that_fails_is_an_internal_error_and_not_the_end(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    class BrokenSession(type(translator.engine.begin(translator.config))):  # type: ignore[misc]
        def step(self) -> Any:
            raise RuntimeError("secret")

    with in_thread([("toy", translator)]) as (address, _):
        with monkeypatch.context() as patch:
            patch.setattr(
                translator.engine, "begin", lambda config: BrokenSession(translator.engine, config), raising=False
            )
            answer = httpx.post(f"{address}/v1/translate", json={"text": "babo", "stream": stream})
        if stream:
            assert events(answer.text) == [("error", {"error": "internal error"})]
        else:
            assert refused(answer, 500) == "internal error"
        assert httpx.get(f"{address}/health").status_code == 200
        assert httpx.post(f"{address}/v1/translate", json={"text": "babo"}).status_code == 200


# The page's data


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"text": 5}, "text: Input should be a valid string"),
        ({"text": "babo", "beam": "x"}, "beam: Input should be a valid integer"),
        ({}, "text: Field required"),
        (b"{", "JSON decode error"),
    ],
)
def test_a_look_that_is_asked_for_wrongly_is_told_what_is_wrong(client: httpx.Client, wanted: Any, words: str) -> None:
    content = wanted if isinstance(wanted, bytes) else json.dumps(wanted)
    answer = client.post(LOOK, content=content, headers={"content-type": "application/json"})
    assert words in refused(answer, 400)


@pytest.fixture
def held_look(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Looks end once this is set."""
    look, may_end = routes.look, threading.Event()

    def held(*asked: Any) -> Any:
        assert may_end.wait(PATIENCE)
        return look(*asked)

    monkeypatch.setattr(routes, "look", held)
    yield may_end
    may_end.set()


def ask_to_look(address: str, timeout: float = PATIENCE) -> httpx.Response:
    return httpx.post(f"{address}{LOOK}", json={"text": "babo"}, timeout=timeout)


def test_few_may_wait_for_a_look(translator: Translator, held_look: threading.Event) -> None:
    with in_thread([("toy", translator)]) as (address, _), ThreadPoolExecutor(10) as pool:
        asked = [pool.submit(ask_to_look, address) for _ in range(10)]  # one is made, eight wait
        first = next(as_completed(asked, timeout=PATIENCE)).result()
        held_look.set()
        assert "too many looks are waiting" in refused(first, 429)
        assert first.headers["retry-after"] == "1"
        assert sorted(one.result().status_code for one in asked) == [200] * 9 + [429]


def test_looks_nobody_waits_for_any_more_keep_nobody_out(translator: Translator, held_look: threading.Event) -> None:
    def leaves(address: str) -> bool:
        """Whether a client had to wait until it left; else it was refused."""
        try:
            refused(ask_to_look(address, timeout=1.0), 429)
        except httpx.ReadTimeout:
            return True
        return False

    with in_thread([("toy", translator)]) as (address, _), ThreadPoolExecutor(9) as pool:
        assert all(pool.map(leaves, [address] * 9))
        give_up = time.monotonic() + 20
        while not leaves(address):  # the server may still be learning that they left
            assert time.monotonic() < give_up
        held_look.set()


def test_a_look_that_waits_too_long_is_given_up(translator: Translator, held_look: threading.Event) -> None:
    limits = {"seconds": 0.2, "receive_seconds": 0.3}
    with in_thread([("toy", translator)], **limits) as (address, _), ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask_to_look, address) for _ in range(2)]
        first = next(as_completed(asked, timeout=PATIENCE)).result()
        held_look.set()
        assert "not done within 0.2 s" in refused(first, 503)


# Many at once


def test_every_client_gets_its_own_translation(client: httpx.Client, translator: Translator, toy_pairs: Any) -> None:
    texts = [source for source, _ in toy_pairs[:60]]
    expected = translator.translate(texts)

    def ask(number: int) -> bool:
        options = {"beam": 2} if number % 3 == 0 else {}
        answer = client.post("/v1/translate", json={"text": texts[number], **options}).json()
        text = answer["translations"][0]["outputs"][0]["text"]
        return text == (translator.translate(texts[number], beam=2) if options else expected[number])

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(60)))


# Limits and keys


@pytest.mark.parametrize("key", [None, "", "fremd", "open sesam"])
def test_without_a_key_nothing_is_translated(guarded: httpx.Client, key: str | None) -> None:
    wanted = {"q": "babo", "source": "en", "target": "de", "api_key": key}
    assert "API key" in refused(guarded.post("/translate", json=wanted), 403)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    assert "API key" in refused(guarded.post("/v1/translate", json={"text": "babo"}, headers=headers), 403)


def test_a_key_opens_both_interfaces(guarded: httpx.Client) -> None:
    headers = {"Authorization": "Bearer open sesame"}
    wanted = {"q": "babo", "source": "en", "target": "de"}
    assert guarded.post("/translate", json=wanted | {"api_key": "friend"}).status_code == 200
    assert guarded.post("/translate", json=wanted, headers=headers).status_code == 200
    assert guarded.post("/v1/translate", json={"text": "babo"}, headers=headers).status_code == 200
    assert guarded.get("/health").status_code == guarded.get("/languages").status_code == 200


@pytest.mark.parametrize(
    ("wanted", "status", "words"),
    [
        ({"text": "b" * 101}, 413, "101 characters are more than the 100 allowed"),
        ({"text": ["b" * 60, "b" * 60]}, 413, "120 characters"),
        ({"text": "babo", "prefix": "b" * 100}, 413, "104 characters"),
        ({"text": "b\n" * 5}, 413, "6 sentences are more than the 5 allowed"),
        ({"text": [""] * 6}, 413, "sentences"),
        ({"text": "babo", "beam": 4}, 400, "beam must be at most 3"),
        ({"text": "babo", "nbest": 3}, 400, "nbest must be at most 2"),
        ({"text": "babo", "max_extra": 11}, 400, "max_extra must be at most 10"),
        ({"text": "babo" * 500}, 413, "the body is larger than the 2,000 bytes allowed"),
    ],
)
def test_limits_hold(guarded: httpx.Client, wanted: Any, status: int, words: str) -> None:
    answer = guarded.post("/v1/translate", json=wanted, headers={"Authorization": "Bearer friend"})
    assert words in refused(answer, status)


def test_a_request_that_takes_too_long_is_given_up(translator: Translator) -> None:
    with in_thread([("toy", translator)], seconds=0.001) as (address, _):
        long = {"text": "\n".join(["babo dego"] * 500)}
        assert "not done within" in refused(httpx.post(f"{address}/v1/translate", json=long), 503)
        streamed = httpx.post(f"{address}/v1/translate", json=long | {"stream": True})
        assert events(streamed.text)[-1][0] == "error"
        dropped = counted(httpx.get(f"{address}/metrics").text, "transduce_dropped_sentences_total")
        assert dropped > 0


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:5000", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_page_from_elsewhere_whose_name_leads_here_is_refused(client: Any, guarded: Any, host: str) -> None:
    for path in ("/", "/languages", LOOK, "/v1/translate"):
        method = "POST" if path in (LOOK, "/v1/translate") else "GET"
        answer = client.request(method, path, json={"text": "babo"}, headers={"host": host})
        assert "answers to localhost alone" in refused(answer, 421)
    assert guarded.get("/languages", headers={"host": host}).status_code == 200  # keys keep it out


@pytest.mark.parametrize("host", ["localhost", "LocalHost:1", "127.0.0.1:5000", "[::1]", "[::1]:80"])
def test_this_machine_is_answered_by_any_of_its_names(client: httpx.Client, host: str) -> None:
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
def test_only_where_nobody_else_can_reach_it_hosts_are_looked_at(bound: str, given: str, hosts: Any) -> None:
    listening: Any = SimpleNamespace(getsockname=lambda: (bound, 5000))
    assert hosts_of(listening, given) == hosts


def test_neither_texts_nor_keys_are_logged(guarded: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wanted = {"q": "babo secret", "source": "en", "target": "de"}
    guarded.post("/translate?q=secret&api_key=friend", json=wanted | {"api_key": "friend"})
    guarded.post("/translate", json=wanted | {"api_key": "secret"})
    guarded.post("/v1/translate", json={"secret": 1}, headers={"Authorization": "Bearer friend"})
    guarded.get("/secret")
    give_up = time.monotonic() + 10
    lines: list[str] = []
    while not any(line.startswith("other 404 ") for line in lines):  # written once the answer is on its way
        assert time.monotonic() < give_up
        lines = [record.getMessage() for record in caplog.records if not record.name.startswith("http")]
    assert any(line.startswith("/translate 200 ") for line in lines)
    assert not [line for line in lines if "secret" in line or "friend" in line]


# State


def test_health_readiness_and_counters(client: httpx.Client) -> None:
    before = counted(client.get("/metrics").text, "transduce_requests_total", path="/translate", status="200")
    client.post("/translate", json={"q": "babo\ndego", "source": "en", "target": "de"})
    metrics = client.get("/metrics").text
    assert counted(metrics, "transduce_requests_total", path="/translate", status="200") == before + 1
    assert counted(metrics, "transduce_waiting_requests") == counted(metrics, "transduce_running_sentences") == 0
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}


def test_what_is_not_there_is_an_error_in_the_same_form(client: httpx.Client) -> None:
    refused(client.get("/nothing"), 404)
    refused(client.get("/v1/translate"), 405)
    refused(client.get("/docs"), 404)  # it would be loaded from elsewhere


def test_the_description_has_examples_and_every_route(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    routes = {"/translate", "/languages", "/v1/translate", "/health", "/ready", "/metrics"}
    assert routes <= described["paths"].keys()
    content = described["paths"]["/translate"]["post"]["requestBody"]["content"]
    assert content.keys() == {"application/json", "application/x-www-form-urlencoded", "multipart/form-data"}
    example = content["application/json"]["schema"]["example"]
    assert client.post("/translate", json=example).status_code == 200
    own = described["paths"]["/v1/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]["example"]
    assert client.post("/v1/translate", json=own).status_code == 200


# The command


def test_a_mistake_is_one_line(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("")
    for words, message in [
        (["-m", "nothing"], "nothing: no such folder"),
        (["-m", "run", "--limit", "beems=4"], "unknown key beems"),
        (["-m", "run", "--limit", "queue=0"], "queue must be above 0"),
        (["-m", "run", "-m", "run"], "two models are named run"),
        (["-m", "run", "--keys", str(tmp_path / "keys")], "holds no key"),
        (["-m", "run", "--keys", "missing"], "missing"),
        (["-m", "run", "--host", "256.0.0.1"], "cannot listen on 256.0.0.1"),
    ]:
        outcome = transduce("serve", *words, cwd=trained.folder)
        assert outcome.code == 2, (words, outcome)
        assert outcome.err.startswith("transduce: ")
        assert message in outcome.err
        assert outcome.err.count("\n") == 1


def test_without_the_extra_it_says_what_to_install(trained: Any) -> None:
    code = "import sys; sys.modules['fastapi'] = None; sys.argv = ['transduce', 'serve', '-m', 'run']; "
    code += "from transduce.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=trained.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "transduce: serving needs fastapi: pip install 'transduce[serve]'\n"


def test_it_serves_where_nothing_can_be_written(transduce: Any, trained: Any, tmp_path: Path) -> None:
    """No file may grow by a byte: what a read-only file system would refuse."""
    environment = transduce.environment | {"PYTHONDONTWRITEBYTECODE": "1"}

    def write_nothing() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    read, write = os.pipe()  # its log is a pipe: a file could not be written
    command = [sys.executable, "-m", "transduce", "serve", "--port", "0", "-m", "toy=run"]
    with subprocess.Popen(
        command, cwd=trained.folder, env=environment, stderr=write, preexec_fn=write_nothing
    ) as process:
        os.close(write)
        with os.fdopen(read) as said:
            address = re.search(r"http://\S+", said.readline())[0]
            body = {"q": (None, "babo " * 4000), "source": (None, "en"), "target": (None, "de")}
            answer = httpx.post(f"{address}/translate", files=body, timeout=PATIENCE)
            assert answer.status_code == 200
            assert httpx.post(f"{address}/v1/translate", json={"text": "babo", "align": True}).status_code == 200
            process.terminate()
            assert process.wait(PATIENCE) == 0


def test_an_address_of_ip_6_is_said_as_one_can_be_asked_for(transduce: Any, trained: Any, tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    words = ["--host", "::1", "-m", trained.run]
    with ServerProcess(*words, log=tmp_path / "log", environment=transduce.environment) as server:
        assert server.address.startswith("http://[::1]:")
        assert httpx.get(f"{server.address}/health").status_code == 200
        assert httpx.get(f"{server.address}/health", headers={"host": "evil.example"}).status_code == 421


def test_several_models_are_served_by_name(transduce: Any, trained: Any, tmp_path: Path) -> None:
    words = ["-m", f"de={trained.run}", "-m", f"fr={trained.run}"]
    with ServerProcess(*words, log=tmp_path / "log", environment=transduce.environment) as server:
        assert server.address.startswith("http://127.0.0.1:")
        for name in ("de", "fr"):
            answer = httpx.post(
                f"{server.address}/v1/translate", json={"text": "babo", "model": name}, timeout=PATIENCE
            )
            assert answer.json()["model"] == name
        (line,) = httpx.get(f"{server.address}/languages").json()
        assert line["targets"] == ["de", "fr"]
        assert server.process.poll() is None

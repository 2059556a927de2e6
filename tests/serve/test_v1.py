"""The v1 interface: outputs, streams, sentences and alternatives."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from helpers import small_model
from serving import INSPECT, TEXTS, TIMEOUT, error_message, events, metric_value, serve_in_thread

from transduce.serve.v1 import AlternativesRequest, _forced_parts
from transduce.translation.translator import Translator


def test_outputs_have_scores_tokens_and_alignments(client: httpx.Client, translator: Translator) -> None:
    texts = [text for text in TEXTS if text]
    response = client.post("/v1/translate", json={"text": texts, "nbest": 3, "align": True, "beam": 5}).json()
    expected = translator.hypotheses(texts, nbest=3, beam=5, align=True)
    assert response["model"] == "en-de"
    for text, got, best in zip(texts, response["translations"], expected, strict=True):
        assert got["source_tokens"] == translator.source_tokens(translator.segments(text))
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


# Sentences and alternatives


def test_sentences_have_the_ranges_that_are_aligned() -> None:
    with serve_in_thread([("en-de-fr", Translator.load())]) as (address, _):
        body = {"text": " The dog sleeps. Write to tom@example.org.", "to": "de", "sentences": True, "align": True}
        (answer,) = httpx.post(f"{address}/v1/translate", json=body).json()["translations"]
        first, second = answer["sentences"]
        words = {first["text"][c:d]: first["source"][a:b] for (a, b), (c, d) in first["aligned"]}
        assert words["Hund"] == "dog"
        copied = {second["text"][c:d]: second["source"][a:b] for (a, b), (c, d) in second["aligned"]}
        assert copied["tom@example.org"] == "tom@example.org"
        del body["align"]
        (answer,) = httpx.post(f"{address}/v1/translate", json=body).json()["translations"]
        assert answer["sentences"][0]["aligned"] is None
        detected = [httpx.post(f"{address}/v1/detect", json={"text": text}).json() for text in ("Guten Morgen!", "は")]
        assert [(answer["name"], answer["available"]) for answer in detected] == [("German", True), ("Japanese", False)]


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


def test_an_alternative_for_a_word_is_not_joined_to_the_word_before() -> None:
    translator = Translator.load(None, threads=1)
    text, output = "A man sleeps.", "Ein Mann schläft."
    request = AlternativesRequest(text=text, output=output, position=output.index("schläft"), count=16, to="de")
    parts = _forced_parts(translator, request)
    assert 8 < len(parts) <= 16
    for part in parts:
        forced = translator.tokenizer.target.decode(part.prefix)
        assert not forced.removeprefix("Ein Mann")[:1].isalnum(), forced


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

"""OpenAI's completions interface of the server."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import torch
from serving import TIMEOUT, ServerProcess, metric_value, serve_in_thread

from transduce.language_model.generator import Generator
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.models.folder import save_model
from transduce.search.sampling import GradualDecoder
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig
from transduce.translation.translator import Translator

LINES = ["the cat sat on the mat.\n", "naïve 東京 text\n", "dogs and cats\n"] * 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model with random weights."""
    tokenizer = Tokenizer.train_on_documents(LINES, TokenizerConfig(vocab_size=430))
    torch.manual_seed(3)
    config = DecoderOnlyConfig(layers=1, d_model=16, d_ff=32, num_heads=2, dropout=0.0)
    model = DecoderOnly(config, tokenizer.vocab_size).eval()
    path = tmp_path_factory.mktemp("language") / "lm"
    save_model(path, model, tokenizer, {"task": "language_model", "max_length": 40})
    return path


@pytest.fixture(scope="module")
def generator(folder: Path) -> Generator:
    return Generator.load(folder, device="cpu")


@pytest.fixture(scope="module")
def client(generator: Generator) -> Iterator[httpx.Client]:
    with (
        serve_in_thread([], generators={"lm": generator, "other": generator}) as (address, _),
        httpx.Client(base_url=address, timeout=TIMEOUT) as client,
    ):
        yield client


def complete(client: httpx.Client, status: int = 200, **body: Any) -> Any:
    response = client.post("/v1/completions", json=body)
    assert response.status_code == status, response.text
    return response.json() if status == 200 else response.json()["error"]["message"]


def streamed(client: httpx.Client, **body: Any) -> list[Any]:
    response = client.post("/v1/completions", json=body | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, end, nothing = response.text.split("\n\n")
    assert (end, nothing) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_a_prompt_is_continued(client: httpx.Client, generator: Generator) -> None:
    answer = complete(client, model="lm", prompt="the cat", max_tokens=7, temperature=0)
    (expected,) = generator.generations(["the cat"], max_tokens=7, temperature=0)[0]
    assert answer["choices"] == [
        {"text": expected.text, "index": 0, "logprobs": None, "finish_reason": expected.finish_reason}
    ]
    prompt_tokens = len(generator.tokenizer.encode("the cat"))
    assert answer["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 7,
        "total_tokens": prompt_tokens + 7,
    }
    assert (answer["object"], answer["model"]) == ("text_completion", "lm")
    assert answer["id"].startswith("cmpl-")
    assert abs(answer["created"] - time.time()) < 3600


def test_options_are_those_of_the_generator(client: httpx.Client, generator: Generator) -> None:
    options: dict[str, Any] = {"temperature": 1.3, "top_p": 0.9, "top_k": 50, "min_p": 0.01, "seed": 5}
    prompts = ["the cat", "dogs"]
    answer = complete(client, prompt=prompts, n=2, max_tokens=9, stop=["a"], **options)
    expected = generator.generations(prompts, num=2, max_tokens=9, stop=["a"], **options)
    found = [(choice["index"], choice["text"], choice["finish_reason"]) for choice in answer["choices"]]
    wanted = [one for several in expected for one in several]
    assert found == [(index, one.text, one.finish_reason) for index, one in enumerate(wanted)]


def test_a_prompt_that_does_not_fit_in_the_context_is_refused(client: httpx.Client, generator: Generator) -> None:
    prompt = "the cat sat on the mat. " * 20
    tokens = len(generator.tokenizer.encode_document(prompt))
    error = complete(client, 400, prompt=["the cat", prompt], max_tokens=5)
    assert f"maximum context length is 40 tokens, too few for a prompt of {tokens:,} and a completion of 5" in error
    assert "context length" in complete(client, 400, prompt=prompt, max_tokens=5, stream=True)
    scored = complete(client, prompt=prompt, max_tokens=0, echo=True, logprobs=0)  # in windows, as `score` does
    assert len(scored["choices"][0]["logprobs"]["tokens"]) == tokens
    assert complete(client, prompt="the cat", max_tokens=60)["usage"]["completion_tokens"] <= 60


def test_without_a_seed_outputs_differ(client: httpx.Client) -> None:
    assert len({complete(client, prompt="the", max_tokens=12)["choices"][0]["text"] for _ in range(4)}) > 1


def test_an_output_has_at_most_16_tokens_by_default(client: httpx.Client) -> None:
    (choice,) = complete(client, prompt="the", logprobs=0, temperature=0)["choices"]
    assert (len(choice["logprobs"]["tokens"]), choice["finish_reason"]) == (16, "length")


def test_a_stream_has_the_same_text(client: httpx.Client) -> None:
    body: dict[str, Any] = {"prompt": ["the", "東"], "max_tokens": 20, "seed": 3, "n": 2}
    events = streamed(client, **body, stream_options={"include_usage": True})
    whole = complete(client, **body)
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == whole["usage"]
    texts, reasons = [""] * 4, [None] * 4
    for event in events[:-1]:
        assert event["id"] == events[0]["id"]
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
            reasons[choice["index"]] = choice["finish_reason"]
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert reasons == [choice["finish_reason"] for choice in whole["choices"]]
    assert len(events) > 10


def test_echo_and_logprobs(client: httpx.Client, generator: Generator) -> None:
    prompt = "the cat sat"
    (choice,) = complete(client, prompt=prompt, max_tokens=3, temperature=0, echo=True, logprobs=1)["choices"]
    (score,) = generator.score([prompt])
    (new,) = generator.generations([prompt], max_tokens=3, temperature=0)[0]
    assert choice["text"] == prompt + new.text
    tokens = [token.replace("▁", " ") for token in [*score.tokens, *new.tokens]]
    assert choice["logprobs"]["tokens"] == tokens
    values = [*score.token_log_probs, *new.token_log_probs]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(values, abs=1e-4)
    assert choice["logprobs"]["text_offset"][: len(score.tokens)] == [
        len("".join(tokens[:n])) for n in range(len(score.tokens))
    ]
    scored = complete(client, prompt=[prompt, "dogs"], max_tokens=0, echo=True, logprobs=1)["choices"]
    assert [one["text"] for one in scored] == [prompt, "dogs"]
    assert scored[0]["logprobs"]["token_logprobs"] == pytest.approx(score.token_log_probs, abs=1e-4)
    assert streamed(client, prompt="x", max_tokens=1, echo=True)[0]["choices"][0]["text"] == "x"


def test_the_language_models_are_listed(client: httpx.Client) -> None:
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["lm", "other"]
    assert client.post("/translate", json={"q": "x", "source": "en", "target": "de"}).status_code == 404
    schema = client.get("/openapi.json").json()["paths"]
    assert {"/v1/completions", "/v1/models"} <= schema.keys()


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"prompt": "x", "model": "gpt"}, 400, "no such language model; available: lm, other"),
        ({"prompt": []}, 400, "prompt: give at least one text"),
        ({"prompt": [1, 2]}, 400, "prompt"),
        ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens must be at least 1, unless echo is set"),
        ({"prompt": "x", "max_tokens": 1001}, 400, "max_tokens must be at most 1000"),
        ({"prompt": "x", "n": 17}, 400, "n must be at most 16"),
        ({"prompt": ["x"] * 1000, "n": 16, "max_tokens": 1000}, 413, "16,000,000 tokens of all outputs are more than"),
        ({"prompt": "x", "stop": ["a"] * 17}, 400, "stop: give at most 16 texts"),
        ({"prompt": "x", "stop": ""}, 400, "stop must not be empty: it is a text before which an output ends"),
        ({"prompt": "x", "stop": ["a" * 30_000]}, 413, "30,001 characters are more than the 20,000 allowed"),
        ({"prompt": "x", "seed": 10**400}, 400, "seed"),
        ({"prompt": "x", "temperature": "nan"}, 400, "temperature"),
        ({"prompt": "x", "max_tokens": 10**30}, 400, "max_tokens must be at most 1000"),
        ({"prompt": {"a": 1}}, 400, "prompt"),
        ({"prompt": "x", "temperature": -1}, 400, "temperature must be between 0 and 1000"),
        ({"prompt": "x", "top_p": 0}, 400, "top_p must be above 0 and at most 1"),
        ({"prompt": "x", "suffix": "y"}, 400, "suffix is not supported"),
        ({"prompt": "x", "presence_penalty": 0.5}, 400, "presence_penalty is not supported"),
        ({"prompt": "x", "best_of": 3}, 400, "best_of is not supported"),
        ({"prompt": "x", "logprobs": 5}, 400, "logprobs"),
        ({"prompt": "x", "nonsense": 1}, 400, "nonsense"),
        ({"prompt": "x" * 20_001}, 413, "20,001 characters are more than the 20,000 allowed"),
    ],
)
def test_bad_requests_are_answered_with_the_reason(client: httpx.Client, body: Any, status: int, message: str) -> None:
    assert message in complete(client, status, **body)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"prompt": "\\ud800"}', 400),
        (b'{"prompt": "x", "stop": "\\udfff"}', 400),
        (b'{"prompt": "x", "temperature": NaN}', 400),
        (b'{"prompt": "x", "top_p": 1e999}', 400),
        (b'{"prompt": "x", "logit_bias": ' + b'{"a":' * 5000, 400),
        (b'{"prompt": "\xff"}', 400),
        (b"[" * 100_000, 400),
        (b'{"prompt": "' + b"x" * 2_000_000 + b'"}', 413),
    ],
)
def test_hostile_bodies_are_refused(client: httpx.Client, body: bytes, status: int) -> None:
    response = client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert response.status_code == status
    assert set(response.json()) == {"error"}
    assert complete(client, prompt="x", max_tokens=1, temperature=0)["usage"]["completion_tokens"] == 1


def test_values_without_effect_are_accepted(client: httpx.Client) -> None:
    complete(
        client, prompt="x", max_tokens=1, best_of=1, presence_penalty=0, frequency_penalty=0.0, user="me", suffix=""
    )


PARAMETERS: dict[str, tuple[list[Any], list[Any]]] = {
    "model": (["lm", "other", None], ["gpt", 3]),
    "prompt": (["x", ["x", "dogs"], "", None], [[1, 2], [[1], [2]], []]),
    "best_of": ([1, None], [2, 20]),
    "echo": ([True, False, None], ["yes"]),
    "frequency_penalty": ([0, 0.0, None], [0.5, -2]),
    "logit_bias": ([{}, {"5": 0}, None], [{"50256": -100}]),
    "logprobs": ([0, 1, None], [2, 5, -1]),
    "max_tokens": ([1, 3, None], [0, -1, 10**6, 1.5]),
    "n": ([1, 2, None], [0, 17]),
    "presence_penalty": ([0, None], [1]),
    "seed": ([0, 7, -7, 2**62, None], [2**63, 0.5]),
    "stop": (["a", ["a", "e", "the", " "], None], ["", ["a"] * 17, 3]),
    "stream": ([False, None], ["yes"]),
    "stream_options": ([{"include_usage": True}, {"include_obfuscation": False}, None], [True]),
    "suffix": (["", None], ["the end"]),
    "temperature": ([0, 0.7, 2, None], [-1, "hot"]),
    "top_p": ([1, 0.5, None], [0, 2]),
    "user": (["me", None], [5]),
}
"""Every parameter of OpenAI's interface: values that are accepted, and values that are refused."""


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_is_accepted_or_refused_by_name(client: httpx.Client, name: str) -> None:
    accepted, refused = PARAMETERS[name]
    for value in accepted:
        body: dict[str, Any] = {"prompt": "x", "max_tokens": 2} | {name: value}
        complete(client, **body)
    for value in refused:
        response = client.post("/v1/completions", json={"prompt": "x", "max_tokens": 2, name: value})
        error = response.json()["error"]
        assert (response.status_code, error["type"], "\n" in error["message"]) == (400, "invalid_request_error", False)
        assert name.split("_")[0] in error["message"], error


def test_the_parameters_are_those_of_the_interface(client: httpx.Client) -> None:
    path = client.get("/openapi.json").json()["paths"]["/v1/completions"]["post"]
    properties = path["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert properties.keys() == PARAMETERS.keys() | {"top_k", "min_p"}


def test_an_output_ends_before_the_first_of_several_stop_texts(client: httpx.Client) -> None:
    body: dict[str, Any] = {"prompt": "the", "max_tokens": 30, "seed": 5, "temperature": 2}
    whole = complete(client, **body)["choices"][0]["text"]
    stops = [whole[12:14], whole[5:7], "never"]
    (choice,) = complete(client, **body, stop=stops)["choices"]
    assert len(whole) > 14
    assert choice["text"] == whole[: min(whole.index(stop) for stop in stops[:2])]
    assert choice["finish_reason"] == "stop"


def test_keys_and_limits_apply(generator: Generator) -> None:
    with serve_in_thread([], ["friend"], {"lm": generator}, seconds=0.3, max_length=10_000) as (address, _):
        assert httpx.get(f"{address}/v1/models").status_code == 403
        assert httpx.post(f"{address}/v1/completions", json={"prompt": "x"}).status_code == 403
        headers = {"authorization": "Bearer friend"}
        assert len(httpx.get(f"{address}/v1/models", headers=headers).json()["data"]) == 1
        body = {"prompt": "x", "max_tokens": 10_000, "n": 16, "seed": 1}
        late = httpx.post(f"{address}/v1/completions", json=body, headers=headers, timeout=TIMEOUT)
        assert (late.status_code, "not finished within 0.3 s" in late.json()["error"]["message"]) == (503, True)
        events = httpx.post(
            f"{address}/v1/completions", json=body | {"stream": True}, headers=headers, timeout=TIMEOUT
        ).text
        assert '"error": {"message": "not finished within 0.3 s' in events
        assert "[DONE]" not in events


def test_the_memory_of_a_request_is_bounded(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert generator.cache_bytes == 4 * 2 * 16  # keys and values of the only layer
    rows, start = list[int](), generator.decoder.reorder

    def reorder(state: Any, index_BW: torch.Tensor) -> Any:
        rows.append(index_BW.numel())
        return start(state, index_BW)

    monkeypatch.setattr(generator.decoder, "reorder", reorder)
    body = {"prompt": ["the cat", "dogs"], "n": 3, "max_tokens": 30, "temperature": 0, "stop": ["zzz"]}
    texts = []
    for outputs in (100, 3, 2, 1):
        tokens = 1 + max(len(generator.tokenizer.encode_document(text)) for text in body["prompt"]) + 30
        rows.clear()
        memory = 4 * outputs * tokens * generator.cache_bytes
        with serve_in_thread([], generators={"lm": generator}, cache_bytes=memory) as (address, _):
            answer = httpx.post(f"{address}/v1/completions", json=body, timeout=TIMEOUT).json()
            texts.append([choice["text"] for choice in answer["choices"]])
        assert max(rows) == min(6, outputs)
    assert texts == texts[:1] * 4
    with serve_in_thread([], generators={"lm": generator}, cache_bytes=1_000) as (address, _):
        refused = httpx.post(f"{address}/v1/completions", json=body, timeout=TIMEOUT)
    assert (refused.status_code, "for its KV cache" in refused.json()["error"]["message"]) == (413, True)


def test_requests_take_turns_and_too_many_are_refused(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.serve.generation_queue._ACTIVE", 2)
    computing, may_continue = threading.Event(), threading.Event()
    decoder = cast(GradualDecoder, generator.decoder)
    start = decoder.start_steps

    def slow(*arguments: Any) -> Any:
        computing.set()
        assert may_continue.wait(TIMEOUT)
        return start(*arguments)

    monkeypatch.setattr(decoder, "start_steps", slow)
    with serve_in_thread([], generators={"lm": generator}, queue=3) as (address, _), ThreadPoolExecutor(20) as pool:

        def ask(number: int) -> httpx.Response:
            body = {"prompt": "the", "max_tokens": 3, "temperature": 0, "n": 1}
            return httpx.post(f"{address}/v1/completions", json=body, timeout=TIMEOUT)

        answers = [pool.submit(ask, 0)]
        assert computing.wait(TIMEOUT)  # otherwise all others could arrive before it leaves the queue
        answers += [pool.submit(ask, number) for number in range(1, 12)]
        deadline = time.monotonic() + TIMEOUT
        while sum(answer.done() for answer in answers) < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        may_continue.set()
        statuses = [answer.result().status_code for answer in answers]
        # One is being computed, three wait, and up to two others may already be in turn.
        assert 6 <= statuses.count(429) <= 8
        assert statuses.count(200) == 12 - statuses.count(429)
        texts = {answer.result().text for answer in answers if answer.result().status_code == 200}
        assert len({json.loads(text)["choices"][0]["text"] for text in texts}) == 1
        assert (
            metric_value(httpx.get(f"{address}/metrics").text, "transduce_requests_total", path="/v1/completions") == 12
        )


def test_a_disconnected_client_frees_the_device(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    step = generator.decoder.step

    def counted(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        time.sleep(0.005)
        return step(*arguments)

    monkeypatch.setattr(generator.decoder, "step", counted)
    with serve_in_thread([], generators={"lm": generator}, max_length=100_000) as (address, _):
        body = {"prompt": "the", "max_tokens": 100_000, "stream": True, "temperature": 5}
        with httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=TIMEOUT) as response:
            next(response.iter_text())
        deadline = time.monotonic() + TIMEOUT
        before = -1
        while steps != before and time.monotonic() < deadline:
            before = steps
            time.sleep(0.3)
        assert steps == before, "generation continues without a client"


def test_an_internal_error_ends_one_request_only(
    generator: Generator, monkeypatch: pytest.MonkeyPatch, client: httpx.Client
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(generator.decoder, "step", lambda *_: 1 / 0)
        response = client.post("/v1/completions", json={"prompt": "secret"})
        error = {"message": "internal error", "type": "server_error", "param": None, "code": None}
        assert (response.status_code, response.json()) == (500, {"error": error})
    complete(client, prompt="x", max_tokens=1)


def test_both_kinds_of_models_are_served_by_the_command(
    transduce: Any, trained: Any, folder: Path, tmp_path: Path
) -> None:
    arguments = ("-m", folder, "-m", f"de={trained.run}", "--device", "cpu")
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background) as server:
        assert "serving de, lm on http" in server.stderr
        with httpx.Client(base_url=server.address, timeout=TIMEOUT) as client:
            assert complete(client, prompt="the", max_tokens=2, temperature=0)["model"] == "lm"
            assert client.post("/v1/translate", json={"text": "babo"}).status_code == 200
            assert isinstance(Translator.load(trained.run), Translator)

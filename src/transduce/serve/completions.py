"""OpenAI's completions interface for language models: POST /v1/completions and GET /v1/models."""

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import accumulate, chain
from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from transduce.deadline import check_deadline
from transduce.language_model.generator import TOGETHER, GenerationEvent, Generator, TextScore, stop_texts
from transduce.search.options import SamplingOptions
from transduce.serve.api_keys import ApiKeys
from transduce.serve.generation_queue import GenerationJob, Result
from transduce.serve.limits import OPENAI_PATHS, HttpError, Limits, error_body
from transduce.serve.request_parsing import ERROR_RESPONSES, JSON, Texts, read_json, request_body
from transduce.serve.scheduler import Scheduler
from transduce.serve.workers import Pending, Workers
from transduce.tokenizers.symbols import BYTE_TOKEN, SPACE_MARK

_MAX_STOPS = 16
_UNSUPPORTED = ("frequency_penalty", "logit_bias", "presence_penalty", "suffix")
_MOST_UNSENT = 256
"""Parts of a stream that wait for the client before others are merged into them."""
_CACHE_SHARE = 4
"""Share of the memory for KV caches that a request has: one part of this number, so that others run beside it."""
_SEEDS = 2**31
_STEP_TOKENS = 512
"""Tokens of prompts that are scored together; a longer prompt, or window of one, is scored by itself."""
_EXAMPLE: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 64, "temperature": 0.8}


# Requests and responses


class OpenAIError(BaseModel):
    """An error as OpenAI's interface describes it."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAIErrorResponse(BaseModel):
    """The body of every error response."""

    error: OpenAIError


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {**response, "model": OpenAIErrorResponse} for status, response in ERROR_RESPONSES.items()
}


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="ignore")
    include_usage: bool = Field(False, description="Send the number of tokens before the end of the stream.")


class CompletionRequest(BaseModel):
    """A prompt, or several, to continue."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": _EXAMPLE})
    model: str | None = Field(None, description="Name of a model; by default the server's first language model.")
    prompt: Texts | None = Field("", description="Text to continue, or several texts; token ids are not supported.")
    max_tokens: int | None = Field(None, ge=0, description="Maximum number of new tokens of an output; default 16.")
    temperature: float | None = Field(None, description="Temperature; 0 takes the most likely token.")
    top_p: float | None = Field(None, description="See the search options of /v1/translate.")
    top_k: int | None = Field(None, description="Not part of OpenAI's interface; see the search options.")
    min_p: float | None = Field(None, description="Not part of OpenAI's interface; see the search options.")
    n: int | None = Field(None, ge=1, description="Number of outputs for each prompt; default 1.")
    stop: Texts | None = Field(None, description="Text, or up to 16 texts, before which an output ends.")
    seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="Random seed; without it, outputs differ between requests."
    )
    stream: bool | None = Field(None, description="Send text as it is generated, as server-sent events.")
    stream_options: StreamOptions | None = None
    echo: bool | None = Field(None, description="Begin every output with its prompt.")
    logprobs: int | None = Field(None, ge=0, le=1, description="Return the log-probability of every token.")
    best_of: int | None = Field(None, description="Only the value of n is supported.")
    suffix: str | None = Field(None, description="Not supported.")
    presence_penalty: float | None = Field(None, description="Only 0 is supported.")
    frequency_penalty: float | None = Field(None, description="Only 0 is supported.")
    logit_bias: dict[str, float] | None = Field(None, description="Not supported.")
    user: str | None = Field(None, description="Ignored.")

    @property
    def prompts(self) -> list[str]:
        return [self.prompt or ""] if isinstance(self.prompt, str | None) else self.prompt

    @property
    def outputs(self) -> int:
        """Number of outputs for each prompt."""
        return self.n or 1

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def limit(self) -> int:
        """Maximum number of new tokens of an output."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def new_tokens(self) -> int:
        """Maximum number of new tokens of all outputs."""
        return len(self.prompts) * self.outputs * self.limit


class LogProbs(BaseModel):
    """The tokens of an output and their log-probabilities."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class Choice(BaseModel):
    """One output, or a part of it."""

    text: str
    index: int
    logprobs: LogProbs | None = None
    finish_reason: str | None = None


class Usage(BaseModel):
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """The outputs of all prompts, or with `stream` a part of one of them."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None


class ModelEntry(BaseModel):
    """A language model of the server."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "transduce"


class ModelList(BaseModel):
    """The language models of the server."""

    object: str = "list"
    data: list[ModelEntry]


# Routes


def completion_routes(
    generators: Mapping[str, Generator], scheduler: Scheduler, limits: Limits, keys: ApiKeys, workers: Workers
) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["language models"])
    started = int(time.time())
    event = {"type": "object", "required": ["data"], "properties": {"data": {"type": "string"}}}
    stream = {"text/event-stream": {"schema": event}}

    @router.get("/models", responses={403: _ERRORS[403]})
    async def models(request: Request) -> ModelList:
        """The language models that the server offers."""
        keys.check(request)
        return ModelList(data=[ModelEntry(id=name, created=started) for name in generators])

    @router.post(
        "/completions",
        response_model=Completion,
        responses={200: {"content": stream}, **_ERRORS},
        openapi_extra=request_body(CompletionRequest, JSON),
    )
    async def completions(request: Request) -> Any:
        """Continue one prompt or several, as in OpenAI's interface.

        With `stream`, the response is a stream of events with parts of the outputs; the last one is `[DONE]`.
        """
        keys.check(request)
        body = await read_json(CompletionRequest, request, workers)
        name = next(iter(generators)) if body.model is None else body.model
        if name not in generators:
            raise HttpError(400, f"no such language model; available: {', '.join(generators)}")
        _check(body, limits)
        answer = _Answer(name, generators[name], body)
        await workers.run(sum(map(len, body.prompts)), answer.count_prompt)
        at_once, cache_bytes = answer.batch(limits.cache_bytes)
        work = answer.work(at_once)
        pending: Pending[Result | None] = Pending(limits.seconds, "ask for fewer tokens")
        job = GenerationJob(work, pending.deliver, sum(map(len, body.prompts)) + body.new_tokens, cache_bytes)
        scheduler.generate(job)
        pending.cancel_with(lambda: scheduler.stop_generating(job))
        parts = _parts(answer, pending)
        if body.stream:
            with_usage = bool(body.stream_options and body.stream_options.include_usage)
            return StreamingResponse(_events(answer, parts, with_usage), media_type="text/event-stream")
        async for _ in parts:
            pass
        return answer.completion()

    return router


def _check(request: CompletionRequest, limits: Limits) -> None:
    """Raise an error if a request exceeds a limit or needs what is not supported."""
    if not request.prompts:
        raise HttpError(400, "prompt: give at least one text")
    if len(request.stops) > _MAX_STOPS:
        raise HttpError(400, f"stop: give at most {_MAX_STOPS} texts")
    characters = sum(map(len, [*request.prompts, *request.stops]))
    if characters > limits.characters:
        raise HttpError(413, f"{characters:,} characters are more than the {limits.characters:,} allowed")
    if len(request.prompts) > limits.sentences:
        raise HttpError(413, f"{len(request.prompts):,} prompts are more than the {limits.sentences:,} allowed")
    for name, value, most in (("n", request.outputs, limits.nbest), ("max_tokens", request.limit, limits.max_length)):
        if value > most:
            raise HttpError(400, f"{name} must be at most {most}")
    if request.new_tokens > limits.output_tokens:
        raise HttpError(
            413, f"{request.new_tokens:,} tokens of all outputs are more than the {limits.output_tokens:,} allowed; "
            "send fewer prompts, or lower n or max_tokens"
        )  # fmt: skip
    if request.limit == 0 and not request.echo:
        raise HttpError(400, "max_tokens must be at least 1, unless echo is set")
    for name in _UNSUPPORTED:
        value = getattr(request, name)
        if any(value.values()) if isinstance(value, dict) else value:
            raise HttpError(400, f"{name} is not supported")
    if request.best_of not in (None, request.outputs):
        raise HttpError(400, "best_of is not supported")


class _Answer:
    """The response to a request, as far as it is known."""

    def __init__(self, name: str, generator: Generator, request: CompletionRequest) -> None:
        self._generator, self._request = generator, request
        self._head: dict[str, Any] = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": name}
        count = len(request.prompts) * request.outputs
        self._choices = [Choice(text="", index=index, logprobs=self._no_logprobs()) for index in range(count)]
        self._prompt_lengths: list[int] = []
        """Number of tokens of each prompt."""
        self._new_tokens = 0

    def batch(self, most_bytes: int) -> tuple[int, int]:
        """How many outputs are generated at once, and the size of their KV caches; an error if one does not fit."""
        generator, outputs = self._generator, len(self._prompt_lengths) * self._request.outputs
        tokens = min(generator.context, 1 + max(self._prompt_lengths) + self._request.limit)
        size = generator.cache_bytes * tokens
        if size > most_bytes:
            raise HttpError(
                413, f"an output of {tokens:,} tokens with its prompt needs {size / 1e6:,.0f} MB for its KV cache, "
                f"more than the {most_bytes / 1e6:,.0f} MB allowed; shorten the prompt or lower max_tokens"
            )  # fmt: skip
        at_once = max(1, min(TOGETHER, outputs, most_bytes // _CACHE_SHARE // size))
        return at_once, at_once * size

    def work(self, at_once: int) -> Iterator[Result | None]:
        """Generates tokens; with `echo`, first the scores of the prompts. None is a step with neither."""
        request = self._request
        sampling = request.model_dump(include={"temperature", "top_p", "top_k", "min_p"}, exclude_none=True)
        sampling["seed"] = secrets.randbelow(_SEEDS) if request.seed is None else request.seed % _SEEDS
        options = cast(SamplingOptions, sampling)
        self._generator.with_options(options)  # an error if one is out of range
        stops = stop_texts(request.stops)
        echo = self._scores() if request.echo else iter(())
        events = self._generator.event_steps(
            request.prompts, num=request.outputs, max_tokens=request.limit, stop=stops, at_once=at_once,
            **options,
        )  # fmt: skip
        return chain(echo, events if request.limit else ())

    def _scores(self) -> Iterator[list[TextScore] | None]:
        if self._request.logprobs is None:
            return iter([[]])
        return self._generator.score_steps(self._request.prompts, batch_tokens=_STEP_TOKENS)

    def count_prompt(self) -> None:
        """Count the tokens of the prompts; an error if one that is continued does not fit in the context."""
        generator, limit = self._generator, self._request.limit
        for text in self._request.prompts:
            check_deadline()
            tokens = len(generator.tokenizer.encode_document(text))
            if limit and generator.unread_tokens(text, limit):
                raise HttpError(
                    400,
                    f"this model's maximum context length is {generator.context:,} tokens, too few for a prompt of "
                    f"{tokens:,} and a completion of {limit:,}; shorten the prompt or lower max_tokens",
                )
            self._prompt_lengths.append(tokens)

    def add(self, result: Result) -> list[Choice]:
        """Add a result to the choices; returns the parts that it adds."""
        if isinstance(result, list):
            parts = self._echoes(result)
        else:
            parts = [self._part(result)]
            self._new_tokens += result.token is not None
        for part in parts:
            _extend(self._choices[part.index], part)
        return parts

    def _part(self, event: GenerationEvent) -> Choice:
        index = event.prompt * self._request.outputs + event.output
        logprobs = self._no_logprobs()
        if logprobs and event.token is not None:
            logprobs = _logprobs(
                self._generator.tokenizer.pieces([event.token]), [event.log_prob], len(self._choices[index].text)
            )
        return Choice(text=event.text, index=index, logprobs=logprobs, finish_reason=event.finish_reason)

    def _echoes(self, scores: list[TextScore]) -> list[Choice]:
        """The prompt of every choice, with its log-probabilities if the client wants them."""
        parts = []
        for choice in self._choices:
            prompt = choice.index // self._request.outputs
            logprobs = _logprobs(scores[prompt].tokens, scores[prompt].token_log_probs, 0) if scores else None
            reason = None if self._request.limit else "length"
            text = self._request.prompts[prompt]
            parts.append(Choice(text=text, index=choice.index, logprobs=logprobs, finish_reason=reason))
        return parts

    def _no_logprobs(self) -> LogProbs | None:
        return None if self._request.logprobs is None else _logprobs([], [], 0)

    def completion(self, choices: list[Choice] | None = None) -> Completion:
        """The complete response, or with these choices a part of it; the last part has none."""
        prompts, new = sum(self._prompt_lengths), self._new_tokens
        usage = Usage(prompt_tokens=prompts, completion_tokens=new, total_tokens=prompts + new)
        return Completion(**self._head, choices=self._choices if choices is None else choices, usage=usage)


def _extend(choice: Choice, part: Choice) -> None:
    """Add the next part of an output to it."""
    choice.text += part.text
    choice.finish_reason = part.finish_reason
    if part.logprobs and choice.logprobs:
        for name, values in part.logprobs:
            getattr(choice.logprobs, name).extend(values)


def _logprobs(pieces: list[str], values: list[float], start: int) -> LogProbs:
    """Pieces as OpenAI writes them, with spaces; `start` is the place of the first one in its text."""
    tokens = [piece.replace(SPACE_MARK, " ") for piece in pieces]
    lengths = (0 if BYTE_TOKEN.fullmatch(token) else len(token) for token in tokens)
    offsets = list(accumulate(lengths, initial=start))[:-1]
    top = [{token: value} for token, value in zip(tokens, values, strict=True)]
    return LogProbs(tokens=tokens, token_logprobs=values, top_logprobs=top, text_offset=offsets)


# Streaming


async def _parts(answer: _Answer, pending: Pending[Result | None]) -> AsyncIterator[Choice]:
    """The parts of the response, as they arrive."""
    try:
        while (result := await pending.next()) is not None:
            for part in answer.add(result):
                if part.text or part.finish_reason or part.logprobs:
                    yield part
    finally:
        pending.close()


async def _events(answer: _Answer, parts: AsyncIterator[Choice], with_usage: bool) -> AsyncIterator[str]:
    """The response as server-sent events; the last one has the usage, if the client wants it."""
    unsent = _UnsentParts(parts)
    try:
        async for part in unsent:
            yield _event(answer.completion([part]).model_dump_json(exclude={"usage"}))
    except Exception as error:  # too late for another status
        message = error.message if isinstance(error, HttpError) else "internal error"
        yield _event(json.dumps(error_body(OPENAI_PATHS[0], 500, message)))
        return
    finally:
        unsent.close()
    if with_usage:
        yield _event(answer.completion([]).model_dump_json())
    yield _event("[DONE]")


def _event(data: str) -> str:
    return f"data: {data}\n\n"


class _UnsentParts:
    """Collects parts while the client reads; iterate over them, then call `close`.

    An event for every token takes much more memory than the text. If the client does not keep up, what is in memory is
    therefore about as large as the response without `stream`, and generation does not wait for the client.
    """

    def __init__(self, parts: AsyncIterator[Choice]) -> None:
        self._waiting: deque[Choice] = deque()
        self._newest: dict[int, Choice] = {}
        """The last waiting part of each output."""
        self._error: BaseException | None = None
        self._changed = asyncio.Event()
        self._collector = asyncio.create_task(self._collect(parts))
        self._collector.add_done_callback(self._end)

    async def __aiter__(self) -> AsyncIterator[Choice]:
        while True:
            while self._waiting:
                part = self._waiting.popleft()
                if self._newest[part.index] is part:
                    del self._newest[part.index]
                yield part
            if self._collector.done():
                break
            self._changed.clear()
            await self._changed.wait()
        if self._error:
            raise self._error

    def close(self) -> None:
        self._collector.cancel()

    async def _collect(self, parts: AsyncIterator[Choice]) -> None:
        async for part in parts:
            newest = self._newest.get(part.index)
            if newest and len(self._waiting) >= _MOST_UNSENT:
                _extend(newest, part)
            else:
                self._waiting.append(part)
                self._newest[part.index] = part
            self._changed.set()

    def _end(self, collector: "asyncio.Task[None]") -> None:
        if not collector.cancelled():
            self._error = collector.exception()
        self._changed.set()

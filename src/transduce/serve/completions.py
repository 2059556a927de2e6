"""OpenAI's completions interface for language models: POST /v1/completions and GET /v1/models."""

import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import accumulate, chain
from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from transduce.errors import ConfigError
from transduce.language_model.generation import GenerationEvent, TextScore, stop_texts
from transduce.language_model.generator import Generator
from transduce.search.options import SamplingOptions
from transduce.serve.api_keys import ApiKeys
from transduce.serve.completion_schemas import (
    Choice,
    Completion,
    CompletionRequest,
    LogProbs,
    ModelEntry,
    ModelList,
    Usage,
)
from transduce.serve.completion_stream import UnsentParts, extend_choice
from transduce.serve.errors import HttpError
from transduce.serve.generation_queue import GenerationQueue
from transduce.serve.generation_service import PendingGeneration
from transduce.serve.limits import Limits
from transduce.serve.request_parsing import ERROR_RESPONSES, JSON, bearer_token, content_type, read_json, request_body
from transduce.serve.translation_service import ClientDisconnectedError
from transduce.tokenizers.symbols import BYTE_TOKEN, SPACE_MARK

_MAX_STOPS = 16
_UNSUPPORTED = {"suffix", "logit_bias", "presence_penalty", "frequency_penalty"}


def completion_routes(
    generators: Mapping[str, Generator], queue: GenerationQueue, limits: Limits, keys: ApiKeys
) -> APIRouter:
    """Routes of language models, below /v1."""
    router = APIRouter(prefix="/v1", tags=["language models"])
    started = int(time.time())
    stream = {"text/event-stream": {"schema": {"type": "string"}}}

    @router.get("/models", responses={403: ERROR_RESPONSES[403]})
    async def models(request: Request) -> ModelList:
        """The language models that the server offers."""
        keys.check(bearer_token(request))
        return ModelList(data=[ModelEntry(id=name, created=started) for name in generators])

    @router.post(
        "/completions",
        response_model=Completion,
        responses={200: {"content": stream}, **ERROR_RESPONSES},
        openapi_extra=request_body(CompletionRequest, JSON),
    )
    async def completions(request: Request) -> Any:
        """Continue one prompt or several, as in OpenAI's interface.

        With `stream`, the response is a stream of events with parts of the outputs; the last one is `[DONE]`.
        """
        keys.check(bearer_token(request))
        if content_type(request) != JSON:
            raise HttpError(415, f"send {JSON}")
        wanted = await read_json(CompletionRequest, request)
        name = next(iter(generators)) if wanted.model is None else wanted.model
        if name not in generators:
            raise HttpError(400, f"no such language model; available: {', '.join(generators)}")
        _check(wanted, limits)
        answer = _Answer(name, generators[name], wanted)
        try:
            results = answer.results()
        except ConfigError as error:
            raise HttpError(400, str(error)) from None
        await run_in_threadpool(answer.count_prompt)
        pending = PendingGeneration(queue, request.receive, limits.seconds)
        pending.submit(results, sum(map(len, wanted.prompts)) + wanted.new_tokens)
        if wanted.stream:
            return StreamingResponse(_events(answer, pending), media_type="text/event-stream")
        async for result in pending.results():
            answer.add(result)
        return answer.completion()

    return router


def _check(wanted: CompletionRequest, limits: Limits) -> None:
    """Raise an error if a request exceeds a limit or wants what is not supported."""
    if not wanted.prompts:
        raise HttpError(400, "prompt: give at least one text")
    if len(wanted.stops) > _MAX_STOPS:
        raise HttpError(400, f"stop: give at most {_MAX_STOPS} texts")
    characters = sum(map(len, [*wanted.prompts, *wanted.stops]))
    if characters > limits.characters:
        raise HttpError(413, f"{characters:,} characters are more than the {limits.characters:,} allowed")
    if len(wanted.prompts) > limits.sentences:
        raise HttpError(413, f"{len(wanted.prompts):,} prompts are more than the {limits.sentences:,} allowed")
    for name, value, most in (("n", wanted.outputs, limits.nbest), ("max_tokens", wanted.limit, limits.max_length)):
        if value > most:
            raise HttpError(400, f"{name} must be at most {most}")
    if wanted.new_tokens > limits.output_tokens:
        raise HttpError(
            413, f"{wanted.new_tokens:,} tokens of all outputs are more than the {limits.output_tokens:,} allowed; "
            "send fewer prompts, or lower n or max_tokens"
        )  # fmt: skip
    if wanted.limit == 0 and not wanted.echo:
        raise HttpError(400, "max_tokens must be at least 1, unless echo is set")
    if given := [name for name in sorted(_UNSUPPORTED) if getattr(wanted, name)]:
        raise HttpError(400, f"{given[0]} is not supported")
    if wanted.best_of not in (None, wanted.outputs):
        raise HttpError(400, "best_of is not supported")


class _Answer:
    """The response to a request, as far as it is known."""

    def __init__(self, name: str, generator: Generator, wanted: CompletionRequest) -> None:
        self._generator, self._wanted = generator, wanted
        self._head: dict[str, Any] = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": name}
        count = len(wanted.prompts) * wanted.outputs
        self._choices = [Choice(text="", index=index, logprobs=self._no_logprobs()) for index in range(count)]
        self._prompt_tokens = self._new_tokens = 0

    def results(self) -> Iterator[GenerationEvent | list[TextScore]]:
        """The work: tokens, and with `echo` and `logprobs` first the scores of the prompts."""
        wanted = self._wanted
        given: dict[str, Any] = {
            name: value for name in ("temperature", "top_p", "top_k", "min_p", "seed")
            if (value := getattr(wanted, name)) is not None
        }  # fmt: skip
        options = cast(SamplingOptions, {"seed": secrets.randbelow(2**31), **given})
        self._generator.with_options(options)
        limits: dict[str, Any] = {"num": wanted.outputs, "max_tokens": wanted.limit, "stop": stop_texts(wanted.stops)}
        scores = self._scores() if wanted.echo else iter(())
        events = self._generator.events(wanted.prompts, **limits, **options) if wanted.limit else iter(())
        return chain(scores, events)

    def _scores(self) -> Iterator[list[TextScore]]:
        prompts = self._wanted.prompts
        yield self._generator.score(prompts) if self._wanted.logprobs is not None else []

    def count_prompt(self) -> None:
        """Count the tokens of the prompts; an error if one that is continued does not fit in the context."""
        generator, limit = self._generator, self._wanted.limit
        for text in self._wanted.prompts:
            tokens = len(generator.tokenizer.encode_document(text))
            if limit and generator.unread_tokens(text, limit):
                raise HttpError(
                    400,
                    f"this model's maximum context length is {generator.context:,} tokens, too few for a prompt of "
                    f"{tokens:,} and a completion of {limit:,}; shorten the prompt or lower max_tokens",
                )
            self._prompt_tokens += tokens

    def add(self, result: GenerationEvent | list[TextScore]) -> list[Choice]:
        """Add a result to the choices; returns the parts that it adds."""
        if isinstance(result, list):
            parts = self._echoes(result)
        else:
            parts = [self._part(result)]
            self._new_tokens += result.token is not None
        for part in parts:
            extend_choice(self._choices[part.index], part)
        return parts

    def _part(self, event: GenerationEvent) -> Choice:
        index = event.prompt * self._wanted.outputs + event.output
        logprobs = self._no_logprobs()
        if logprobs and event.token is not None:
            logprobs = _logprobs(
                self._generator.tokenizer.pieces([event.token]), [event.log_prob], len(self._choices[index].text)
            )
        return Choice(text=event.text, index=index, logprobs=logprobs, finish_reason=event.finish_reason)

    def _echoes(self, scores: list[TextScore]) -> list[Choice]:
        """The prompt of every choice, with its log-probabilities if they are wanted."""
        parts = []
        for choice in self._choices:
            prompt = choice.index // self._wanted.outputs
            logprobs = _logprobs(scores[prompt].tokens, scores[prompt].token_log_probs, 0) if scores else None
            reason = None if self._wanted.limit else "length"
            text = self._wanted.prompts[prompt]
            parts.append(Choice(text=text, index=choice.index, logprobs=logprobs, finish_reason=reason))
        return parts

    def _no_logprobs(self) -> LogProbs | None:
        return None if self._wanted.logprobs is None else _logprobs([], [], 0)

    def part(self, choice: Choice) -> Completion:
        """A part of the response, for a stream."""
        return Completion(**self._head, choices=[choice])

    def completion(self) -> Completion:
        """The complete response."""
        return Completion(**self._head, choices=self._choices, usage=self.usage)

    @property
    def usage(self) -> Usage:
        """The tokens of the request and of the response."""
        total = self._prompt_tokens + self._new_tokens
        return Usage(prompt_tokens=self._prompt_tokens, completion_tokens=self._new_tokens, total_tokens=total)

    def last_part(self) -> Completion | None:
        """The part with the usage, if the client wants it."""
        options = self._wanted.stream_options
        return Completion(**self._head, choices=[], usage=self.usage) if options and options.include_usage else None


def _logprobs(pieces: list[str], values: list[float], start: int) -> LogProbs:
    """Pieces as OpenAI writes them, with spaces; `start` is the place of the first one in its text."""
    tokens = [piece.replace(SPACE_MARK, " ") for piece in pieces]
    lengths = (0 if BYTE_TOKEN.fullmatch(token) else len(token) for token in tokens)
    offsets = list(accumulate(lengths, initial=start))[:-1]
    top = [{token: value} for token, value in zip(tokens, values, strict=True)]
    return LogProbs(tokens=tokens, token_logprobs=values, top_logprobs=top, text_offset=offsets)


async def _parts(answer: _Answer, pending: PendingGeneration) -> AsyncIterator[Choice]:
    """The parts of the response, as they arrive."""
    async for result in pending.results():
        for part in answer.add(result):
            if part.text or part.finish_reason or part.logprobs:
                yield part


async def _events(answer: _Answer, pending: PendingGeneration) -> AsyncIterator[str]:
    """The response as server-sent events."""
    unsent = UnsentParts(_parts(answer, pending))
    try:
        async for part in unsent:
            yield _event(answer.part(part).model_dump_json(exclude={"usage"}))
    except ClientDisconnectedError:
        return
    except Exception as error:  # too late for another status
        message = error.message if isinstance(error, HttpError) else "internal error"
        yield _event(json.dumps({"error": message}))
        return
    finally:
        unsent.close()
    if last := answer.last_part():
        yield _event(last.model_dump_json())
    yield _event("[DONE]")


def _event(data: str) -> str:
    return f"data: {data}\n\n"

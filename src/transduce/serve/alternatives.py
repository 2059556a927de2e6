"""Alternatives for a word of a translation: the words the model could have written there, and how it continues."""

import re
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from transduce.errors import DataError, needs_torch
from transduce.files.scripts import has_spaces
from transduce.search.decoder import NEVER_GENERATED
from transduce.serve.api_keys import ApiKeys
from transduce.serve.errors import HttpError
from transduce.serve.request_parsing import ERROR_RESPONSES, JSON, bearer_token, content_type, read_json, request_body
from transduce.serve.served_models import ServedModels
from transduce.serve.translation_service import TranslationService
from transduce.tokenizers.symbols import escape
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.translation.pipeline import output_text
from transduce.translation.text import Segment
from transduce.translation.translation import Translation
from transduce.translation.translator import Translator

_EXAMPLE: dict[str, Any] = {"text": "A man sleeps.", "output": "Ein Mann schläft.", "position": 9}


class AlternativesRequest(BaseModel):
    """A sentence, its translation, and a word of the translation."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": _EXAMPLE})
    text: str = Field(description="One sentence, as `sentences` of /v1/translate returns it.")
    output: str = Field(description="Its translation.")
    position: int = Field(ge=0, description="Index of the first character of a word in the translation.")
    model: str | None = Field(None, description="Name of a model; by default the server's first model.")
    to: str | None = Field(None, description="Target language, e.g. de; for a model with several.")
    count: int = Field(8, ge=1, le=16, description="Number of alternatives.")


class Alternative(BaseModel):
    """Another word, and the translation that begins with it from there."""

    word: str
    probability: float = Field(description="Probability of the word, given the words before it.")
    text: str = Field(description="The whole translation if this word is chosen.")
    word_confidences: list[float] = Field(description="The probability of each of its words between white space.")
    prefix: list[int] = Field(description="The ids of the tokens up to the first one of the word.")


class Alternatives(BaseModel):
    """Alternatives, most probable first; the word itself is one of them if it is probable enough."""

    before: str = Field(description="The translation before the word.")
    alternatives: list[Alternative]


def alternatives_routes(service: TranslationService, models: ServedModels, keys: ApiKeys) -> APIRouter:
    """The route /v1/alternatives."""
    router = APIRouter(prefix="/v1", tags=["v1"])

    @router.post("/alternatives", responses=ERROR_RESPONSES, openapi_extra=request_body(AlternativesRequest, JSON))
    async def alternatives(request: Request) -> Alternatives:
        """The most probable words at a place of a translation, each with the translation that follows from it."""
        keys.check(bearer_token(request))
        if content_type(request) != JSON:
            raise HttpError(415, f"send {JSON}")
        wanted = await read_json(AlternativesRequest, request)
        service.check_size([wanted.text], [wanted.output])
        model = models.by_name(wanted.model)
        try:
            parts = await run_in_threadpool(_forced_parts, model.translator, wanted)
        except DataError as error:
            raise HttpError(400, str(error)) from None
        split = await service.accept_parts(request.receive, model, parts, "words").all()
        start = _prefix_length(model.translator, parts[0])
        found: dict[str, Alternative] = {}
        for part, lines in zip(parts, split.texts, strict=True):
            one = _alternative(model.translator, part, split.outputs(lines)[0], start)
            found.setdefault(one.word, one)
        ranked = sorted(found.values(), key=lambda one: -one.probability)
        return Alternatives(before=wanted.output[:start], alternatives=ranked)

    return router


def _forced_parts(translator: Translator, wanted: AlternativesRequest) -> list[Segment]:
    """The sentence with a forced prefix up to the word and each of the most probable tokens there."""
    part = translator.whole(wanted.text, wanted.to)
    if wanted.position >= len(wanted.output):
        raise DataError(f"position {wanted.position} is not in the output, which has {len(wanted.output)} characters")
    tokens = _tokens_before(translator, part, wanted.output, wanted.position)
    return [replace(part, prefix=[*tokens, token]) for token in _likeliest(translator, part, tokens, wanted.count)]


def _likeliest(translator: Translator, part: Segment, tokens: list[int], count: int) -> list[int]:
    """The most probable tokens after the first tokens of an output."""
    with needs_torch():
        import torch

        from transduce.data.batch import Batch

        model = translator.model
        with torch.inference_mode():
            batch = Batch.of(model.device, src=[[*part.tokens, EOS]], tgt=[[BOS, *tokens]])
            logits_V = model.logits(model(batch)[-1:])[0].float()
            logits_V[[*NEVER_GENERATED, EOS]] = -float("inf")
            return logits_V.topk(min(count, len(logits_V))).indices.tolist()


def _tokens_before(translator: Translator, part: Segment, output: str, position: int) -> list[int]:
    """The tokens of an output before the one that has the character at a position."""
    marked = escape(output)
    for slot, required in part.slots.items():
        marked = marked.replace(escape(required.text), slot, 1)
    tokens = translator.tokenizer.target.encode_all([marked], marked=True)[0]
    for count in range(len(tokens)):
        (text,) = translator.tokenizer.target.decode_all([tokens[: count + 1]], marked=True)
        if len(output_text(text, part)) > position:
            return tokens[:count]
    return tokens


def _prefix_length(translator: Translator, part: Segment) -> int:
    """The number of characters of an output before the last forced token."""
    if len(part.prefix) == 1:
        return 0
    (text,) = translator.tokenizer.target.decode_all([part.prefix[:-1]], marked=True)
    return len(output_text(text, part))


def _alternative(translator: Translator, part: Segment, output: Translation, start: int) -> Alternative:
    words = list(re.finditer(r"\S+", output.text))
    index = next((n for n, word in enumerate(words) if word.end() > start), len(words) - 1)
    probabilities = output.word_confidences or []
    if not words or index >= len(probabilities):
        return Alternative(word="", probability=0.0, text=output.text, word_confidences=[], prefix=part.prefix)
    word = output.text[max(start, words[index].start()) : words[index].end()]
    if not has_spaces(word[0]):  # the whole sentence would be one word: show the token
        word = translator.tokenizer.target.decode([part.prefix[-1]]).strip() or word
    return Alternative(
        word=word,
        probability=probabilities[index],
        text=output.text,
        word_confidences=probabilities,
        prefix=part.prefix,
    )

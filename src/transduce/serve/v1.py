"""The /v1 interface: n-best translations with scores and alignments, in one response or as a stream."""

import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, cast, get_type_hints

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, create_model

from transduce.search.options import SearchConfig, SearchOptions
from transduce.serve.api_keys import ApiKeys
from transduce.serve.errors import HttpError
from transduce.serve.request_parsing import (
    ERROR_RESPONSES,
    JSON,
    ErrorResponse,
    bearer_token,
    content_type,
    read_json,
    request_body,
)
from transduce.serve.served_models import ServedModels
from transduce.serve.split_texts import Sentence, SplitTexts
from transduce.serve.translation_service import ClientDisconnectedError, PendingRequest, TranslationService
from transduce.translation.translation import Translation

_EXAMPLE: dict[str, Any] = {"text": ["A man sleeps.", "Two dogs run."], "nbest": 2, "align": True}


_SCHEMA_BOUNDS = {"at_least": "minimum", "above": "exclusiveMinimum", "at_most": "maximum"}


class _TextRequest(BaseModel):
    """Texts to translate and search options; an option that is not given has the model's value."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": _EXAMPLE})
    text: str | list[str] = Field(description="One text or several; each line is translated separately.")
    model: str | None = Field(None, description="Name of a model; by default the server's first model.")
    to: str | None = Field(None, description="Target language, e.g. de; for a model with several.")
    prefix: str = Field("", description="Text that every sentence of a translation starts with.")
    glossary: dict[str, str] | None = Field(None, description="Terms, and the translations to use for them.")
    protect: bool = Field(True, description="Keep addresses, placeholders, numbers with units and emoji unchanged.")
    align: bool = Field(False, description="Return, for each token, the source token with the highest weight.")
    confidence: bool | Literal["words"] = Field(
        False,
        description="Estimate the quality of outputs, for which the model must be calibrated; `words` adds only the "
        "probabilities of words, which need no calibration.",
    )
    sentences: bool = Field(False, description="Return the sentences that were translated, with their translations.")
    stream: bool = Field(False, description="Send each sentence when it is finished, as server-sent events.")

    def options(self, default: SearchConfig) -> SearchOptions:
        """The search options that are given; the beam grows with nbest unless it is given or outputs are sampled."""
        given = cast(SearchOptions, self.model_dump(exclude_none=True, exclude={*_TextRequest.model_fields}))
        if "nbest" in given and not given.get("sample", default.sample):
            given.setdefault("beam", max(given["nbest"], default.beam))
        return given


def _search_fields() -> dict[str, Any]:
    """Each search option as an optional field; its bounds are part of the schema, and SearchConfig checks them."""
    hints = get_type_hints(SearchConfig)
    fields: dict[str, Any] = {}
    for option in dataclasses.fields(SearchConfig):
        bounds = {_SCHEMA_BOUNDS[name]: bound for name, bound in option.metadata["bounds"].items()}
        field = Field(None, description=option.metadata["help"], json_schema_extra=bounds)
        fields[option.name] = (hints[option.name] | None, field)
    return fields


TextRequest = create_model("TextRequest", __base__=_TextRequest, __doc__=_TextRequest.__doc__, **_search_fields())


class Output(BaseModel):
    """One translation."""

    text: str
    score: float = Field(description="Ranking score: log-probability divided by the length penalty.")
    log_prob: float
    tokens: list[str]
    alignment: list[int] | None = Field(None, description="For each token, an index into source_tokens.")
    confidence: float | None = Field(None, description="Estimate of chrF / 100, between 0 and 1.")
    word_confidences: list[float] | None = Field(None, description="The probability of each word between white space.")


class TranslatedSentence(BaseModel):
    """A sentence, or a piece of a long one, as the model read it, with its best translation."""

    line: int = Field(description="Index of its line in the text.")
    source: str
    text: str = Field(description="The best translation; empty for an empty line.")
    after: str = Field(description="White space between this translation and the next one of the same line.")
    confidence: float | None = None
    word_confidences: list[float] | None = None


class TranslatedText(BaseModel):
    """The translations of a text, best first."""

    source_tokens: list[str]
    outputs: list[Output]
    sentences: list[TranslatedSentence] | None = Field(None, description="The sentences of the best output.")


class TextAnswer(BaseModel):
    """The translations of all texts, in the order of the request."""

    model: str
    translations: list[TranslatedText]


class SentenceEvent(TranslatedText):
    """The translations of one sentence; sentences are sent in the order in which they finish."""

    text: int = Field(description="Index of its text in the request.")
    line: int = Field(description="Index of its line in the text.")


def v1_routes(asking: TranslationService, catalogue: ServedModels, keys: ApiKeys) -> APIRouter:
    """Routes below /v1."""
    router = APIRouter(prefix="/v1", tags=["v1"])
    event = {
        "type": "object",
        "required": ["event", "data"],
        "properties": {"event": {"enum": ["sentence", "done", "error"]}, "data": {"type": "string"}},
    }
    stream = {"text/event-stream": {"schema": event}}

    @router.post(
        "/translate",
        response_model=TextAnswer,
        responses={200: {"content": stream}, **ERROR_RESPONSES},
        openapi_extra=request_body(TextRequest, JSON),
    )
    async def translate(request: Request) -> Any:
        """Translate one text or several.

        With `stream` the response is a stream of events: `sentence` with the translations of a sentence and the
        indices of its text and line, then `done`, or `error` with `{"error": ...}`.
        """
        keys.check(bearer_token(request))
        if content_type(request) != JSON:
            raise HttpError(415, f"send {JSON}")
        wanted = await read_json(TextRequest, request)
        model = catalogue.by_name(wanted.model)
        texts = [wanted.text] if isinstance(wanted.text, str) else wanted.text
        options = wanted.options(model.translator.config)
        accepted = await asking.accept(
            request.receive,
            model,
            texts,
            prefix=wanted.prefix,
            to=wanted.to,
            align=wanted.align,
            confidence=wanted.confidence,
            glossary=wanted.glossary,
            protect=wanted.protect,
            **options,
        )
        if wanted.stream:
            return StreamingResponse(_events(accepted, wanted.sentences), media_type="text/event-stream")
        passages = await accepted.all()
        translations = [
            TranslatedText(
                source_tokens=passages.source_tokens(lines),
                outputs=_outputs(passages.outputs(lines)),
                sentences=_sentences(passages, lines) if wanted.sentences else None,
            )
            for lines in passages.texts
        ]
        return TextAnswer(model=model.name, translations=translations)

    return router


def _outputs(translations: list[Translation]) -> list[Output]:
    return [Output(**vars(translation)) for translation in translations]


def _sentences(split: SplitTexts, lines: Sequence[Sentence]) -> list[TranslatedSentence]:
    """The sentences of lines that are done; an empty line is one empty sentence."""
    sentences = []
    for line in lines:
        if not line.jobs:
            sentences.append(TranslatedSentence(line=line.line, source="", text="", after=""))
        for part, output, after in split.best_parts(line):
            sentence = TranslatedSentence(
                line=line.line,
                source=part.text,
                text=output.text,
                after=after,
                confidence=output.confidence,
                word_confidences=output.word_confidences,
            )
            sentences.append(sentence)
    return sentences


async def _events(accepted: PendingRequest, with_sentences: bool) -> AsyncIterator[str]:
    passages = accepted.split
    try:
        async for sentence in accepted.sentences():
            event = SentenceEvent(
                text=sentence.text,
                line=sentence.line,
                source_tokens=passages.source_tokens([sentence]),
                outputs=_outputs(passages.outputs([sentence])),
                sentences=_sentences(passages, [sentence]) if with_sentences else None,
            )
            yield f"event: sentence\ndata: {event.model_dump_json()}\n\n"
    except ClientDisconnectedError:
        return
    except Exception as error:  # too late for another status
        message = error.message if isinstance(error, HttpError) else "internal error"
        yield f"event: error\ndata: {ErrorResponse(error=message).model_dump_json()}\n\n"
        return
    yield "event: done\ndata: {}\n\n"

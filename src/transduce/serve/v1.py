"""Our own interface: n-best with scores and alignments, all at once or sentence by sentence."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

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
from transduce.serve.translation_service import ClientDisconnectedError, PendingRequest, TranslationService
from transduce.translator import Translation

_EXAMPLE: dict[str, Any] = {"text": ["A man sleeps.", "Two dogs run."], "nbest": 2, "align": True}


class TextRequest(BaseModel):
    """Texts, and how to search; what is not given is as the model has it."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": _EXAMPLE})
    text: str | list[str] = Field(description="A text, or several; lines are translated one by one.")
    model: str | None = Field(None, description="Name of a model; the first where there are several.")
    prefix: str = Field("", description="What the translation of every text must begin with.")
    align: bool = Field(False, description="Say for each token which source token cross-attention weighs most.")
    stream: bool = Field(False, description="Send each sentence as soon as it is done, as server-sent events.")
    beam: int | None = Field(None, ge=1, description="Hypotheses kept at each step; 1 is greedy.")
    nbest: int | None = Field(None, ge=1, description="Translations for each text.")
    length_penalty: float | None = Field(None, ge=-10, le=10, description="More favours longer outputs.")
    max_extra: int | None = Field(None, ge=0, description="Tokens an output may have beyond its input's.")
    no_repeat: int | None = Field(None, ge=0, lt=2**31, description="No run of so many tokens comes twice; 0 is off.")
    sample: bool | None = Field(None, description="Draw outputs at random.")
    temperature: float | None = Field(None, ge=0.001, le=1000, description="Of sampling: below 1 tamer, above wilder.")
    top_k: int | None = Field(None, ge=0, lt=2**31, description="Sample among so many likeliest tokens; 0 is all.")
    top_p: float | None = Field(None, ge=0.001, le=1, description="Sample among those that make up this probability.")
    seed: int | None = Field(None, ge=0, lt=2**31, description="Of sampling; the same seed draws the same.")

    def options(self, default_beam: int) -> dict[str, Any]:
        """The given ones, in SearchConfig's words; the beam grows with n-best."""
        given = self.model_dump(exclude_none=True, exclude={"text", "model", "prefix", "align", "stream"})
        if self.nbest and not self.beam:
            given["beam"] = max(self.nbest, default_beam)
        return given


class Output(BaseModel):
    """One translation."""

    text: str
    score: float = Field(description="What outputs are ranked by: log-probability over the length penalty.")
    log_prob: float
    tokens: list[str]
    alignment: list[int] | None = Field(None, description="For each token a place in source_tokens.")


class TranslatedText(BaseModel):
    """A text's translations, best first."""

    source_tokens: list[str]
    outputs: list[Output]


class TextAnswer(BaseModel):
    """The texts in the order of the request."""

    model: str
    translations: list[TranslatedText]


class SentenceEvent(TranslatedText):
    """A sentence that is done; they come in the order in which they are done."""

    text: int = Field(description="Number of its text in the request.")
    line: int = Field(description="Number of its line in the text.")


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

        With `stream` the answer is a stream of events: `sentence` with a sentence's translations (as below, with the
        numbers of its text and line), at last `done`, or `error` with `{"error": ...}`.
        """
        keys.check(bearer_token(request))
        if content_type(request) != JSON:
            raise HttpError(415, f"send {JSON}")
        wanted = await read_json(TextRequest, request)
        model = catalogue.by_name(wanted.model)
        texts = [wanted.text] if isinstance(wanted.text, str) else wanted.text
        options = wanted.options(model.translator.config.beam)
        accepted = await asking.accept(
            request.receive, model, texts, prefix=wanted.prefix, align=wanted.align, **options
        )
        if wanted.stream:
            return StreamingResponse(_events(accepted), media_type="text/event-stream")
        passages = await accepted.all()
        translations = [
            TranslatedText(source_tokens=passages.source_tokens(lines), outputs=_outputs(passages.outputs(lines)))
            for lines in passages.texts
        ]
        return TextAnswer(model=model.name, translations=translations)

    return router


def _outputs(translations: list[Translation]) -> list[Output]:
    return [Output(**vars(translation)) for translation in translations]


async def _events(accepted: PendingRequest) -> AsyncIterator[str]:
    passages = accepted.split
    try:
        async for sentence in accepted.sentences():
            event = SentenceEvent(
                text=sentence.text,
                line=sentence.line,
                source_tokens=passages.source_tokens([sentence]),
                outputs=_outputs(passages.outputs([sentence])),
            )
            yield f"event: sentence\ndata: {event.model_dump_json()}\n\n"
    except ClientDisconnectedError:
        return
    except Exception as error:  # too late for another status
        message = error.message if isinstance(error, HttpError) else "internal error"
        yield f"event: error\ndata: {ErrorResponse(error=message).model_dump_json()}\n\n"
        return
    yield "event: done\ndata: {}\n\n"

"""The interface of LibreTranslate, so that its clients work unchanged: POST /translate, GET /languages."""

from typing import Any, Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from transduce.serve.asking import Asking
from transduce.serve.catalogue import AUTO, LANGUAGES, Catalogue
from transduce.serve.forms import JSON, REFUSALS, body_of, complaint, kind_of, offered_key, read_json
from transduce.serve.keys import Keys
from transduce.serve.markup import Markup
from transduce.serve.refusals import Refusal

_URLENCODED = "application/x-www-form-urlencoded"
_FORMS = (_URLENCODED, "multipart/form-data")
_MOST_FIELDS = 1000


class TranslateRequest(BaseModel):
    """What LibreTranslate's clients send; fields it does not know are passed over."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"q": "A man sleeps on a green sofa.", "source": "en", "target": "de"}}
    )
    q: str | list[str] = Field(description="Text, or several; lines are translated one by one.")
    source: str = Field(description="Language code, or auto: the model's own.")
    target: str = Field(description="Language code, or the name of a model.")
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, description="Further translations wanted.")
    api_key: str | None = None


class DetectedLanguage(BaseModel):
    """Nothing is detected: the language is the model's, the confidence 0."""

    language: str
    confidence: float = 0.0


class TranslateAnswer(BaseModel):
    """Lists where `q` was a list."""

    model_config = ConfigDict(json_schema_extra={"example": {"translatedText": "Ein Mann schläft auf einem Sofa."}})
    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None


class Language(BaseModel):
    """A source language, and the targets there are models for."""

    code: str
    name: str
    targets: list[str]


def libretranslate_routes(asking: Asking, catalogue: Catalogue, keys: Keys) -> APIRouter:
    """LibreTranslate's two routes."""
    router = APIRouter(tags=["LibreTranslate"])

    @router.post(
        "/translate",
        responses=REFUSALS,
        response_model_exclude_none=True,
        openapi_extra=body_of(TranslateRequest, JSON, *_FORMS),
    )
    async def translate(request: Request) -> TranslateAnswer:
        """Translate text or HTML, one or several."""
        wanted = await _read(request)
        keys.check(wanted.api_key, offered_key(request))
        model = catalogue.by_languages(wanted.source, wanted.target)
        sources = [wanted.q] if isinstance(wanted.q, str) else wanted.q
        pages = [Markup(source) for source in sources] if wanted.format == "html" else None
        texts = [text for page in pages for text in page.texts] if pages is not None else sources
        options: dict[str, Any] = {}
        if wanted.alternatives:
            nbest = wanted.alternatives + 1
            options = {"nbest": nbest, "beam": max(nbest, model.translator.config.beam)}
        accepted = await asking.accept(request.receive, model, texts, **options)
        passages = await accepted.all()
        found = [[output.text for output in passages.outputs(lines)] for lines in passages.texts]
        if pages is not None:
            found = _filled(pages, found)
        distinct = [list(dict.fromkeys(outputs)) for outputs in found]
        detected = DetectedLanguage(language=model.source) if wanted.source == AUTO and model.source else None
        if isinstance(wanted.q, str):
            (outputs,) = distinct
            return TranslateAnswer(
                translatedText=outputs[0],
                alternatives=outputs[1:] if wanted.alternatives else None,
                detectedLanguage=detected,
            )
        return TranslateAnswer(
            translatedText=[outputs[0] for outputs in distinct],
            alternatives=[outputs[1:] for outputs in distinct] if wanted.alternatives else None,
            detectedLanguage=[detected] * len(distinct) if detected else None,
        )

    @router.get("/languages")
    async def languages() -> list[Language]:
        """The languages there are models for; a model that does not tell its source language has `auto`."""
        targets: dict[str, list[str]] = {}
        for model in catalogue.models:
            targets.setdefault(model.source or AUTO, []).append(model.target or model.name)
        return [Language(code=code, name=LANGUAGES.get(code, code), targets=found) for code, found in targets.items()]

    return router


async def _read(request: Request) -> TranslateRequest:
    kind = kind_of(request)
    if kind == JSON:
        return await read_json(TranslateRequest, request)
    if kind not in _FORMS:
        raise Refusal(415, f"send {JSON} or a form ({' or '.join(_FORMS)})")
    pairs = await _urlencoded(request) if kind == _URLENCODED else await _multipart(request)
    fields: dict[str, Any] = dict(pairs)
    if len(several := [value for name, value in pairs if name == "q"]) > 1:
        fields["q"] = several
    try:
        return TranslateRequest.model_validate(fields)
    except ValidationError as error:
        raise Refusal(400, complaint(error)) from None


async def _urlencoded(request: Request) -> list[tuple[str, Any]]:
    """The fields of a form. Many send UTF-8 as it is (`curl -d`), which Starlette would read as Latin-1."""
    try:
        text = (await request.body()).decode()
        return list(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise Refusal(400, f"the form is not UTF-8, or has more than {_MOST_FIELDS:,} fields") from None


async def _multipart(request: Request) -> list[tuple[str, Any]]:
    async with request.form(max_files=0, max_fields=_MOST_FIELDS, max_part_size=2**31) as form:
        return form.multi_items()


def _filled(pages: list[Markup], found: list[list[str]]) -> list[list[str]]:
    """The outputs of each page, from those of its runs of text."""
    filled, start = [], 0
    for page in pages:
        runs = found[start : start + len(page.texts)]
        start += len(page.texts)
        ranks = min(map(len, runs), default=1)
        filled.append([page.filled([run[rank] for run in runs]) for rank in range(ranks)])
    return filled

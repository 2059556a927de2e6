"""LibreTranslate's HTTP interface, for existing clients: /translate, /languages, /detect, /suggest, /frontend/settings.

`documents.py` has /translate_file.
"""

import json
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from transduce.deadline import check_deadline
from transduce.documents.html_text import HtmlText
from transduce.files.languages import language_name
from transduce.serve.api_keys import ApiKeys
from transduce.serve.documents import document_suffixes
from transduce.serve.limits import HttpError
from transduce.serve.request_parsing import ERROR_RESPONSES, FORMS, JSON, Texts, read_json_or_form, request_body
from transduce.serve.served_models import ServedModel, ServedModels
from transduce.serve.translation_service import RequestLine, SplitTexts, TranslationService
from transduce.translation.detection import AUTO, DETECTION_COST, Detector
from transduce.translation.markup import TaggedText
from transduce.translation.projection import project

_LEAST_PROBABILITY = 0.01
"""Probability below which a language is not mentioned."""
_STORING_COST = 400
"""Cost of detecting the language of a text, and of storing a suggestion, in characters that are translated."""
_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""A language code, or the name of a model."""
_STORING = threading.Lock()


class TranslateRequest(BaseModel):
    """A request in LibreTranslate's format; unknown fields are ignored."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"q": "A man sleeps on a green sofa.", "source": "en", "target": "de"}}
    )
    q: Texts = Field(description="A text or a list of texts; each line is translated separately.")
    source: str = Field(description="Language code, or auto to detect it.")
    target: str = Field(description="Language code, or the name of a model.")
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, description="Number of alternative translations.")
    api_key: str | None = None


class DetectedLanguage(BaseModel):
    """A language that a text may be in."""

    language: str
    confidence: float = Field(0.0, description="Probability in percent, among the languages of the server.")


class DetectRequest(BaseModel):
    """A request for the language of a text; unknown fields are ignored."""

    model_config = ConfigDict(json_schema_extra={"example": {"q": "A man sleeps on a green sofa."}})
    q: Texts = Field(description="A text or a list of texts.")
    api_key: str | None = None


class TranslateResponse(BaseModel):
    """The translations; every field is a list if `q` is a list."""

    model_config = ConfigDict(json_schema_extra={"example": {"translatedText": "Ein Mann schläft auf einem Sofa."}})
    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None


class Language(BaseModel):
    """A source language with its target languages."""

    code: str
    name: str
    targets: list[str]


class LanguageName(BaseModel):
    """A language."""

    code: str
    name: str


class FrontendSettings(BaseModel):
    """What LibreTranslate tells the pages and apps that use it."""

    apiKeys: bool = Field(description="Whether there are API keys.")
    keyRequired: bool = Field(description="Whether an API key is required.")
    charLimit: int = Field(description="Maximum number of characters of a request.")
    frontendTimeout: int = 500
    filesTranslation: bool = True
    suggestions: bool = Field(description="Whether suggestions are accepted.")
    supportedFilesFormat: list[str] = Field(description="Suffixes of files that can be translated.")
    language: dict[Literal["source", "target"], LanguageName] = Field(description="The first direction.")


class SuggestRequest(BaseModel):
    """A suggested translation; unknown fields are ignored."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"q": "Hello", "s": "Hallo", "source": "en", "target": "de"}}
    )
    q: str = Field(description="The original text.")
    s: str = Field(description="The suggested translation.")
    source: str = Field(description="Language code of the original text.")
    target: str = Field(description="Language code of the translation.")
    api_key: str | None = None


class SuggestResponse(BaseModel):
    """Whether the suggestion was stored."""

    success: bool


def libretranslate_routes(
    service: TranslationService,
    models: ServedModels,
    keys: ApiKeys,
    detector: Detector,
    suggestions: Path | None = None,
) -> APIRouter:
    """LibreTranslate's routes; suggested translations are added to the file `suggestions`."""
    router = APIRouter(tags=["LibreTranslate"])
    workers = service.workers

    @router.post(
        "/translate",
        responses=ERROR_RESPONSES,
        response_model_exclude_none=True,
        openapi_extra=request_body(TranslateRequest, JSON, *FORMS),
    )
    async def translate(request: Request) -> TranslateResponse:
        """Translate one text or several, as plain text or HTML."""
        body = await read_json_or_form(TranslateRequest, request, workers)
        keys.check(request, body.api_key)
        texts = [body.q] if isinstance(body.q, str) else body.q
        pages = await _parse_pages(service, texts) if body.format == "html" else None
        detected, languages = None, [body.source] * len(texts)
        if body.source == AUTO:
            plain = texts if pages is None else [" ".join(text.text for text in page.texts) for page in pages]
            service.check_size(plain)  # detection takes time for each text
            ranked = await workers.run(
                DETECTION_COST * len(plain), lambda: [detector.source(text, body.target) for text in plain]
            )
            languages = [language for language, _ in ranked]
            if AUTO not in languages:
                detected = [_detected(language, probability) for language, probability in ranked]
        outputs = [[text] for text in texts]  # one in the target language stays as it is, as with LibreTranslate
        for model, source, indices in _texts_by_model(models, languages, body.target):
            chosen = [pages[index] for index in indices] if pages else [texts[index] for index in indices]
            to = model.target(body.target, source)
            for index, nbest in zip(indices, await _translate(service, body, model, to, chosen), strict=True):
                outputs[index] = nbest
        return _response(body, outputs, detected)

    @router.get("/languages")
    @router.post("/languages", include_in_schema=False)  # as libretranslatepy 2.1.1 does
    async def languages() -> list[Language]:
        """The languages of all models; a source language that neither a model nor its name tells is `auto`."""
        return _languages(models)

    @router.post("/detect", responses=ERROR_RESPONSES, openapi_extra=request_body(DetectRequest, JSON, *FORMS))
    async def detect(request: Request) -> list[DetectedLanguage]:
        """The language of a text, among those of the server, most probable first."""
        body = await read_json_or_form(DetectRequest, request, workers)
        keys.check(request, body.api_key)
        texts = [body.q] if isinstance(body.q, str) else body.q
        service.check_size(texts)
        ranking = await workers.run(DETECTION_COST, detector.rank, " ".join(texts)) or [
            (_languages(models)[0].code, 0.0)
        ]
        return [
            _detected(code, probability)
            for rank, (code, probability) in enumerate(ranking)
            if not rank or probability >= _LEAST_PROBABILITY
        ]

    @router.post("/suggest", responses=ERROR_RESPONSES, openapi_extra=request_body(SuggestRequest, JSON, *FORMS))
    async def suggest(request: Request) -> SuggestResponse:
        """Store a suggested translation, if the server was started with a file for suggestions."""
        body = await read_json_or_form(SuggestRequest, request, workers)
        keys.check(request, body.api_key)
        if suggestions is None:
            raise HttpError(403, "this server accepts no suggestions; start it with --suggestions FILE")
        service.check_size([body.q], [body.s, body.source, body.target])
        if not (_CODE.fullmatch(body.source) and _CODE.fullmatch(body.target)):
            raise HttpError(400, "source and target must be language codes, e.g. en and pt-BR")
        await workers.run(_STORING_COST, _store_suggestion, suggestions, body, service.limits.suggestion_bytes)
        return SuggestResponse(success=True)

    @router.get("/frontend/settings")
    async def frontend_settings() -> FrontendSettings:
        """Limits and the default languages, for pages and apps."""
        first = _languages(models)[0]
        names = {code: LanguageName(code=code, name=language_name(code)) for code in (first.code, first.targets[0])}
        return FrontendSettings(
            apiKeys=bool(keys),
            keyRequired=bool(keys),
            charLimit=service.limits.characters,
            suggestions=suggestions is not None,
            supportedFilesFormat=document_suffixes(),
            language={"source": names[first.code], "target": names[first.targets[0]]},
        )

    return router


def _detected(language: str, probability: float) -> DetectedLanguage:
    return DetectedLanguage(language=language, confidence=round(100 * probability, 1))


def _texts_by_model(
    models: ServedModels, languages: Sequence[str], target: str
) -> Iterable[tuple[ServedModel, str, list[int]]]:
    """The indices of the texts that each model translates, from the source language of each text.

    Texts in different languages are together unless the model reads their language.
    """
    groups: dict[tuple[str, str], tuple[ServedModel, str, list[int]]] = {}
    for text, source in enumerate(languages):
        if source != target or source == AUTO:
            model = models.by_languages(source, target)
            source = source if model.translator.languages.source_tags else AUTO
            groups.setdefault((model.name, source), (model, source, []))[2].append(text)
    return groups.values()


async def _parse_pages(service: TranslationService, texts: Sequence[str]) -> list[HtmlText]:
    size, most = sum(map(len, texts)), service.limits.html_characters
    if size > most:
        raise HttpError(413, f"{size:,} characters with tags are more than the {most:,} allowed")
    if len(texts) > service.limits.sentences:
        raise HttpError(413, f"{len(texts):,} texts are more than the {service.limits.sentences:,} allowed")
    return await service.workers.run(size, lambda: [HtmlText(text) for text in texts])


async def _translate(
    service: TranslationService,
    body: TranslateRequest,
    model: ServedModel,
    to: str | None,
    texts: Sequence[str] | Sequence[HtmlText],
) -> list[list[str]]:
    """The n-best list of each text, which is plain text or HTML."""
    options: dict[str, Any] = {}
    if body.alternatives:
        nbest = body.alternatives + 1
        options = {"nbest": nbest, "beam": max(nbest, model.translator.config.beam)}
    if documents := [text for text in texts if isinstance(text, HtmlText)]:
        tagged = [text for document in documents for text in document.texts]
        split = await (await service.accept_tagged(model, tagged, to, **options)).all()
        size = sum(len(document.source) for document in documents)
        return await service.workers.run(size * (body.alternatives + 1), _fill, documents, split)
    plain = [text for text in texts if isinstance(text, str)]
    split = await (await service.accept(model, plain, to=to, **options)).all()
    return await service.workers.run(split.cost, _texts, split)


def _response(
    body: TranslateRequest, outputs: list[list[str]], detected: list[DetectedLanguage] | None
) -> TranslateResponse:
    """The response to a request, from the n-best list of each of its texts."""
    alternatives = [nbest[1:] for nbest in outputs] if body.alternatives else None
    if isinstance(body.q, str):
        return TranslateResponse(
            translatedText=outputs[0][0],
            alternatives=alternatives and alternatives[0],
            detectedLanguage=detected and detected[0],
        )
    return TranslateResponse(
        translatedText=[nbest[0] for nbest in outputs], alternatives=alternatives, detectedLanguage=detected
    )


def _languages(models: ServedModels) -> list[Language]:
    """All languages: first the source languages, then those that are only targets, which clients look up too."""
    targets: dict[str, list[str]] = {}
    for model in models.models:
        for source, target in model.target_names():
            targets.setdefault(source, []).append(target)
    for model in models.models:
        for _, target_language in model.directions:
            if target_language:
                targets.setdefault(target_language, [])
    return [
        Language(code=code, name=language_name(code), targets=list(dict.fromkeys(codes)))
        for code, codes in targets.items()
    ]


def _store_suggestion(path: Path, body: SuggestRequest, most_bytes: int) -> None:
    """Append a suggestion to a file of pairs, which can be used as training data."""
    record = {"src": body.q, "tgt": body.s, "source": body.source, "target": body.target}
    with _STORING, path.open("a", encoding="utf-8") as file:
        if file.tell() > most_bytes:
            raise HttpError(403, "the server stores no more suggestions: their file is full")
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _texts(split: SplitTexts) -> list[list[str]]:
    """The n-best list of each text."""
    return [[output.text for output in split.outputs(lines)] for lines in split.texts]


def _fill(documents: list[HtmlText], split: SplitTexts) -> list[list[str]]:
    """The n-best list of each document, from the n-best lists of its texts."""
    filled, texts = [], iter(split.texts)
    for document in documents:
        outputs = [_project(text, split, next(texts)) for text in document.texts]
        ranks = max(map(len, outputs), default=1)
        filled.append([document.fill([nbest[min(rank, len(nbest) - 1)] for nbest in outputs]) for rank in range(ranks)])
    return filled


def _project(tagged: TaggedText, split: SplitTexts, lines: Sequence[RequestLine]) -> list[str]:
    """The HTML of each translation of a text."""
    check_deadline()
    return [project(tagged, output.text, split.aligned_spans(lines, output)) for output in split.outputs(lines)]

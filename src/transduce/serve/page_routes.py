"""The page at /: its files, and what it needs to know of the server."""

import gzip
import hashlib
from functools import cache

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from transduce.files.languages import language_name
from transduce.inspect.page import MEDIA_TYPES, static_file
from transduce.inspect.request import can_inspect
from transduce.serve.api_keys import ApiKeys
from transduce.serve.limits import Limits
from transduce.serve.served_models import ServedModel, ServedModels

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; connect-src 'self'; base-uri 'none'"
)
"""The page loads nothing from other servers, whatever text it shows."""


class TranslatorFacts(BaseModel):
    """A translation model of the server."""

    name: str
    directions: list[tuple[str | None, str | None]] = Field(description="Source and target; null if not known.")
    tagged: bool = Field(description="Whether requests must name the target language.")
    inspect: bool = Field(description="Whether /inspect/look accepts it.")


class Translators(BaseModel):
    """The translation models of the server, and what a client needs to use them."""

    models: list[TranslatorFacts]
    languages: dict[str, str] = Field(description="The English name of each language code.")
    key_required: bool
    characters: int = Field(description="Maximum number of characters of a request.")


def page_routes(models: ServedModels, limits: Limits, keys: ApiKeys) -> APIRouter:
    """The routes / and /static of the page, and /v1/translators."""
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    def page(request: Request) -> Response:
        return _file_response(request, "index.html", {"content-security-policy": _CONTENT_SECURITY_POLICY})

    @router.get("/static/{name}", include_in_schema=False)
    def static(request: Request, name: str) -> Response:
        if name not in MEDIA_TYPES:
            raise HTTPException(404)
        return _file_response(request, name, {})

    @router.get("/v1/translators", tags=["v1"])
    def translators() -> Translators:
        """The translation models with their directions; needs no key."""
        facts = [_facts(model) for model in models.models]
        codes = dict.fromkeys(code for model in facts for pair in model.directions for code in pair if code)
        return Translators(
            models=facts,
            languages={code: language_name(code) for code in codes},
            key_required=bool(keys),
            characters=limits.characters,
        )

    return router


def _facts(model: ServedModel) -> TranslatorFacts:
    translator = model.translator
    return TranslatorFacts(
        name=model.name,
        directions=list(dict.fromkeys(model.directions)),
        tagged=translator.tagged,
        inspect=can_inspect(translator),
    )


@cache
def _compressed(name: str) -> tuple[bytes, str]:
    """A static file compressed with gzip, and its ETag."""
    content = static_file(name)
    return gzip.compress(content, 9, mtime=0), f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _file_response(request: Request, name: str, headers: dict[str, str]) -> Response:
    """A static file, or status 304 if the browser has it already; it asks each time, so it never has an old one."""
    compressed, etag = _compressed(name)
    headers = {"etag": etag, "cache-control": "no-cache", "vary": "accept-encoding", **headers}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    accepted = request.headers.get("accept-encoding", "")
    if "gzip" in accepted.lower():
        headers["content-encoding"] = "gzip"
        return Response(compressed, media_type=MEDIA_TYPES[name], headers=headers)
    return Response(static_file(name), media_type=MEDIA_TYPES[name], headers=headers)

"""HTTP routes of inspections; needs the extra `transduce[serve]`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from transduce.errors import ConfigError, needs_torch
from transduce.inspect.request import HeadRequest, InspectionRequest
from transduce.translation.translator import Translator

_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request is invalid."},
    403: {"description": "The API key is missing or invalid."},
    429: {"description": "Too many requests are waiting."},
    503: {"description": "The request was not finished in time."},
}
_FIRST_ERROR = Field(fail_fast=True)
"""Of a list, only the first invalid value is an error."""


@dataclass(frozen=True, kw_only=True)
class LookBody(InspectionRequest):
    """An inspection by one of the models."""

    prefix: Annotated[list[int], _FIRST_ERROR] = field(default_factory=list)
    off: Annotated[list[str], _FIRST_ERROR] = field(default_factory=list)
    model: str | None = None
    """Name of a model; None is the first one."""


@dataclass(frozen=True, kw_only=True)
class ReferenceBody:
    """A text and a translation of it."""

    text: str
    reference: str
    to: str | None = None
    model: str | None = None


@dataclass(frozen=True, kw_only=True)
class HeadBody(HeadRequest):
    """A head of one of the models."""

    output: Annotated[list[int], _FIRST_ERROR] = field(default_factory=list)
    model: str | None = None


def inspect_routes(
    translators: Mapping[str, Translator],
    run: Callable[[Callable[[], Response]], Awaitable[Response]],
    authorize: Callable[[Request], None] = lambda _: None,
) -> APIRouter:
    """Routes of inspections by models, by name: POST /inspect/look, /inspect/reference and /inspect/head.

    /inspect/look takes an InspectionRequest as JSON and returns the bytes of `serialize`; the others return JSON. The
    server is to answer a TransduceError with its message. `run` does work on a thread, within a deadline. `authorize`
    raises an exception for a request that is not allowed.
    """

    async def check(request: Request) -> None:
        authorize(request)

    router = APIRouter(prefix="/inspect", tags=["inspect"], dependencies=[Depends(check)])

    async def answer(name: str | None, work: Callable[[Translator], Response]) -> Response:
        """The response that `work` returns for the model with this name."""
        if name is not None and name not in translators:
            raise ConfigError(f"no such model; available: {', '.join(translators)}")
        translator = next(iter(translators.values())) if name is None else translators[name]
        with needs_torch():
            return await run(lambda: work(translator))

    binary = {200: {"content": {"application/octet-stream": {}}}, **_RESPONSES}

    @router.post("/look", response_class=Response, responses=binary)
    async def look(body: LookBody) -> Response:
        """Translate one sentence and return attention weights, search tree and predictions."""

        def work(translator: Translator) -> Response:
            from transduce.inspect.inspection import inspect_translation
            from transduce.inspect.serialize import serialize

            data = serialize(inspect_translation(translator, body), translator)
            return Response(data, media_type="application/octet-stream")

        return await answer(body.model, work)

    @router.post("/reference", responses=_RESPONSES)
    async def reference(body: ReferenceBody) -> Response:
        """The probability and the rank of each token of a given translation."""

        def work(translator: Translator) -> Response:
            from transduce.inspect.inspection import score_reference

            tokens = score_reference(translator, body.text, body.reference, body.to)
            return JSONResponse({"tokens": [asdict(token) for token in tokens]})

        return await answer(body.model, work)

    @router.post("/head", responses=_RESPONSES)
    async def head(body: HeadBody) -> Response:
        """Query, keys, scores, weights, values and output of one head at one position."""

        def work(translator: Translator) -> Response:
            from transduce.inspect.heads import head_numbers

            return JSONResponse(asdict(head_numbers(translator, body)))

        return await answer(body.model, work)

    return router

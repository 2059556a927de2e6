"""HTTP routes of inspections; needs the extra `transduce[serve]`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from transduce.errors import ConfigError, TransduceError, needs_torch
from transduce.inspect.request import HeadRequest, InspectionRequest
from transduce.translation.translator import Translator

if TYPE_CHECKING:
    from fastapi import APIRouter, Request, Response

_MAX_WAITING = 8
"""Maximum number of requests that wait for their inspection."""
_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request is invalid."},
    403: {"description": "The API key is missing or invalid."},
    429: {"description": "Too many requests are waiting."},
    503: {"description": "The request was not finished in time."},
}


@dataclass(frozen=True, kw_only=True)
class LookBody(InspectionRequest):
    """An inspection by one of the models."""

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

    model: str | None = None


class _TooManyWaitingError(Exception):
    pass


class _ClientGoneError(Exception):
    """The client has disconnected while its request waited."""


class _Turns:
    """Lets one request run at a time; few may wait, and those whose clients have disconnected are skipped."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting: set[Request] = set()

    @asynccontextmanager
    async def take(self, request: "Request") -> AsyncIterator[None]:
        for other in list(self._waiting):
            if await other.is_disconnected():
                self._waiting.discard(other)
        if len(self._waiting) >= _MAX_WAITING:
            raise _TooManyWaitingError
        self._waiting.add(request)
        try:
            async with self._lock:
                self._waiting.discard(request)
                if await request.is_disconnected():
                    raise _ClientGoneError
                yield
        finally:
            self._waiting.discard(request)


def inspect_routes(
    translators: Mapping[str, Translator], seconds: float, authorize: Callable[["Request"], None] = lambda _: None
) -> "APIRouter":
    """Routes of inspections by models, by name: POST /inspect/look, /inspect/reference and /inspect/head.

    /inspect/look takes an InspectionRequest as JSON and returns the bytes of `serialize`; the others return JSON. A
    request that is not finished after `seconds` is rejected. `authorize` raises an exception for one that is not
    allowed.
    """
    from fastapi import APIRouter, Depends, Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import JSONResponse, Response

    def check(request: Request) -> None:
        authorize(request)

    router = APIRouter(prefix="/inspect", tags=["inspect"], dependencies=[Depends(check)])
    turns = _Turns()

    async def answer(request: Request, name: str | None, work: "Callable[[Translator], Response]") -> Response:
        """The response that `work` returns for the model with this name, or an error."""
        try:
            if name is not None and name not in translators:
                raise ConfigError(f"no such model; available: {', '.join(translators)}")
            translator = next(iter(translators.values())) if name is None else translators[name]
            async with asyncio.timeout(seconds), turns.take(request):
                with needs_torch():
                    return await run_in_threadpool(work, translator)
        except _TooManyWaitingError:
            message = "too many inspections are waiting; try again in a moment"
            return JSONResponse({"error": message}, status_code=429, headers={"retry-after": "1"})
        except TimeoutError:
            message = f"not finished within {seconds:g} s"
            return JSONResponse({"error": message}, status_code=503, headers={"retry-after": "1"})
        except _ClientGoneError:
            return Response(status_code=499)
        except TransduceError as error:
            return JSONResponse({"error": str(error)}, status_code=400)

    binary = {200: {"content": {"application/octet-stream": {}}}, **_RESPONSES}

    @router.post("/look", response_class=Response, responses=binary)
    async def look(body: LookBody, request: Request) -> Response:
        """Translate one sentence and return attention weights, search tree and predictions."""

        def work(translator: Translator) -> Response:
            from transduce.inspect.inspection import inspect_translation
            from transduce.inspect.serialize import serialize

            data = serialize(inspect_translation(translator, body), translator)
            return Response(data, media_type="application/octet-stream")

        return await answer(request, body.model, work)

    @router.post("/reference", responses=_RESPONSES)
    async def reference(body: ReferenceBody, request: Request) -> Response:
        """The probability and the rank of each token of a given translation."""

        def work(translator: Translator) -> Response:
            from transduce.inspect.inspection import score_reference

            tokens = score_reference(translator, body.text, body.reference, body.to)
            return JSONResponse({"tokens": [asdict(token) for token in tokens]})

        return await answer(request, body.model, work)

    @router.post("/head", responses=_RESPONSES)
    async def head(body: HeadBody, request: Request) -> Response:
        """Query, keys, scores, weights, values and output of one head at one position."""

        def work(translator: Translator) -> Response:
            from transduce.inspect.heads import head_numbers

            return JSONResponse(asdict(head_numbers(translator, body)))

        return await answer(request, body.model, work)

    return router

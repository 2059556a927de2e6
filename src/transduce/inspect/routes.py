"""HTTP routes of the inspection page; needs the extra `transduce[serve]`."""

import asyncio
from typing import TYPE_CHECKING

from transduce.errors import TransduceError, needs_torch
from transduce.inspect.page import MEDIA_TYPES, static_file
from transduce.inspect.request import InspectionRequest
from transduce.translator import Translator

if TYPE_CHECKING:
    from fastapi import APIRouter

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; connect-src 'self'; base-uri 'none'"
)
"""The page loads nothing from other servers, whatever text it shows."""
_MAX_WAITING = 8
"""Maximum number of requests that wait for their inspection."""


def inspect_routes(translator: Translator) -> "APIRouter":
    """Routes of the page (GET /) and of its data (GET /inspect/targets, POST /inspect/look).

    The former lists the target languages of the model. The latter takes an InspectionRequest as JSON and returns the
    bytes of `serialize`. It handles one request at a time, and few may wait; requests of clients that have disconnected
    are skipped.
    """
    from fastapi import APIRouter, HTTPException, Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import JSONResponse, Response

    router = APIRouter(tags=["inspect"])
    lock = asyncio.Lock()
    waiting: set[Request] = set()

    @router.get("/", include_in_schema=False)
    def page() -> Response:
        headers = {"Content-Security-Policy": _CONTENT_SECURITY_POLICY, "Cache-Control": "no-cache"}
        return Response(static_file("index.html"), media_type=MEDIA_TYPES["index.html"], headers=headers)

    @router.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in MEDIA_TYPES:
            raise HTTPException(404)
        return Response(static_file(name), media_type=MEDIA_TYPES[name], headers={"Cache-Control": "no-cache"})

    @router.get("/inspect/targets")
    def targets() -> list[str]:
        """The target languages of the model, in the order of its directions; empty if they are not known."""
        return list(dict.fromkeys(target for _, target in translator.directions))

    @router.post(
        "/inspect/look",
        response_class=Response,
        responses={
            200: {"content": {"application/octet-stream": {}}},
            400: {"description": "The request is invalid."},
            429: {"description": "Too many requests are waiting."},
        },
    )
    async def inspect(body: InspectionRequest, request: Request) -> Response:
        """Translate one text and return attention weights, search tree and predictions."""
        for other in list(waiting):
            if await other.is_disconnected():
                waiting.discard(other)
        if len(waiting) >= _MAX_WAITING:
            message = "too many inspections are waiting; try again in a moment"
            return JSONResponse({"error": message}, status_code=429, headers={"retry-after": "1"})
        waiting.add(request)
        try:
            async with lock:
                waiting.discard(request)
                if await request.is_disconnected():
                    return Response(status_code=499)
                data = await run_in_threadpool(_inspect, translator, body)
        except TransduceError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        finally:
            waiting.discard(request)
        return Response(data, media_type="application/octet-stream")

    return router


def _inspect(translator: Translator, request: InspectionRequest) -> bytes:
    with needs_torch():
        from transduce.inspect.inspection import inspect_translation
        from transduce.inspect.serialize import serialize

        return serialize(inspect_translation(translator, request), translator)

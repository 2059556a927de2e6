"""The page and its data over HTTP; needs the extra `transduce[serve]`."""

import asyncio
from typing import TYPE_CHECKING

from transduce.errors import TransduceError
from transduce.inspect.look import LookRequest, look
from transduce.inspect.page import MEDIA_TYPES, static_file
from transduce.inspect.wire import to_bytes
from transduce.translator import Translator

if TYPE_CHECKING:
    from fastapi import APIRouter

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; connect-src 'self'; base-uri 'none'"
)
"""The page loads nothing from anywhere else, whatever text it shows."""
_MOST_WAITING = 8
"""Clients that wait for their look; one more is refused."""


def inspect_routes(translator: Translator) -> "APIRouter":
    """GET / is the page, POST /inspect/look its data: a LookRequest as JSON in, the bytes of `wire` out.

    One look is made at a time, and few may wait. Whoever went away while waiting is passed over.
    """
    from fastapi import APIRouter, HTTPException, Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import JSONResponse, Response

    router = APIRouter(tags=["inspect"])
    turn = asyncio.Lock()
    waiting: set[Request] = set()

    @router.get("/", include_in_schema=False)
    def page() -> Response:
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        return Response(static_file("index.html"), media_type=MEDIA_TYPES["index.html"], headers=headers)

    @router.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in MEDIA_TYPES:
            raise HTTPException(404)
        return Response(static_file(name), media_type=MEDIA_TYPES[name], headers={"Cache-Control": "no-cache"})

    @router.post(
        "/inspect/look",
        response_class=Response,
        responses={
            200: {"content": {"application/octet-stream": {}}},
            400: {"description": "What is wrong."},
            429: {"description": "Too many looks are waiting."},
        },
    )
    async def look_inside(wanted: LookRequest, request: Request) -> Response:
        """Look inside the translation of one text."""
        for other in list(waiting):
            if await other.is_disconnected():
                waiting.discard(other)
        if len(waiting) >= _MOST_WAITING:
            words = "too many looks are waiting; try again in a moment"
            return JSONResponse({"error": words}, status_code=429, headers={"retry-after": "1"})
        waiting.add(request)
        try:
            async with turn:
                waiting.discard(request)
                return await answer(wanted, request)
        finally:
            waiting.discard(request)

    async def answer(wanted: LookRequest, request: Request) -> Response:
        if await request.is_disconnected():
            return Response(status_code=499)
        try:
            found = await run_in_threadpool(look, translator, wanted)
        except TransduceError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        return Response(await run_in_threadpool(to_bytes, found, translator), media_type="application/octet-stream")

    return router

"""The application: routes behind a gate."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from transduce import __version__
from transduce.inspect.routes import inspect_routes
from transduce.serve.asking import Asking, ClientGoneError
from transduce.serve.catalogue import Catalogue
from transduce.serve.forms import Problem, complaint
from transduce.serve.gate import CLIENT_GONE, Gate, Traffic
from transduce.serve.keys import Keys
from transduce.serve.libretranslate import libretranslate_routes
from transduce.serve.limits import Limits
from transduce.serve.metrics import Metrics
from transduce.serve.refusals import Refusal
from transduce.serve.scheduler import Scheduler
from transduce.serve.v1 import v1_routes

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def make_app(catalogue: Catalogue, limits: Limits, keys: Keys, hosts: Collection[str] | None = None) -> Gate:
    """Everything between a socket and the models; without keys, only requests to these hosts are answered."""
    metrics = Metrics()
    scheduler = Scheduler(limits.queue, metrics)
    traffic = Traffic()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        scheduler.close()

    # The interactive pages would be loaded from elsewhere; the description itself is at /openapi.json.
    app = FastAPI(
        title="transduce",
        version=__version__,
        description=_describe(limits),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    asking = Asking(scheduler, limits)
    app.include_router(libretranslate_routes(asking, catalogue, keys))
    app.include_router(v1_routes(asking, catalogue, keys))
    _add_state(app, scheduler, traffic, metrics)
    _add_refusals(app)
    if not keys:  # the page has none to offer
        app.include_router(inspect_routes(catalogue.models[0].translator))
    return Gate(app, scheduler, limits, metrics, traffic, None if keys else hosts)


def _describe(limits: Limits) -> str:
    return (
        f"Translation by models of your own. A request may have {limits.characters:,} characters in "
        f"{limits.sentences:,} lines, a body of {limits.body_bytes:,} bytes, a beam of {limits.beam}, "
        f"{limits.nbest} outputs for each text, and takes {limits.seconds:g} s at most."
    )


def _add_state(app: FastAPI, scheduler: Scheduler, traffic: Traffic, metrics: Metrics) -> None:
    unwell: dict[int | str, dict[str, Any]] = {503: {"model": Problem, "description": "Not so."}}

    @app.get("/health", tags=["state"], responses=unwell)
    async def health() -> dict[str, str]:
        """Whether the server works at all; if not, start it again."""
        if not scheduler.alive:
            raise Refusal(503, "the scheduler has ended")
        return {"status": "ok"}

    @app.get("/ready", tags=["state"], responses=unwell)
    async def ready() -> dict[str, str]:
        """Whether new requests are taken."""
        if traffic.draining:
            raise Refusal(503, "the server is shutting down")
        return {"status": "ready"}

    @app.get("/metrics", tags=["state"], response_class=PlainTextResponse)
    async def counted() -> Response:
        """Counters for Prometheus."""
        return Response(metrics.text(), media_type=_PROMETHEUS)


def _add_refusals(app: FastAPI) -> None:
    """Whatever goes wrong is answered with `{"error": ...}`."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> Response:
        return JSONResponse({"error": error.message}, error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def not_understood(_: Request, error: RequestValidationError) -> Response:
        return JSONResponse({"error": complaint(error)}, 400)

    @app.exception_handler(HTTPException)
    async def not_there(_: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(ClientGoneError)
    async def left(_: Request, __: ClientGoneError) -> Response:
        return Response(status_code=CLIENT_GONE)

    @app.exception_handler(Exception)
    async def broken(_: Request, __: Exception) -> Response:
        return JSONResponse({"error": "internal error"}, 500)

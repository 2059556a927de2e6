"""The server's ASGI application."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from transduce.errors import TransduceError
from transduce.features import Registry
from transduce.inspect.page import page_routes
from transduce.serve.api_keys import ApiKeys
from transduce.serve.documents import DocumentJobs, document_routes
from transduce.serve.libretranslate import libretranslate_routes
from transduce.serve.limits import HttpError, Limits, error_body
from transduce.serve.metrics import ServerMetrics
from transduce.serve.middleware import AdmissionMiddleware, ServerState
from transduce.serve.request_parsing import ErrorResponse, validation_message
from transduce.serve.scheduler import Scheduler
from transduce.serve.served_models import ServedModels
from transduce.serve.translation_service import TranslationService
from transduce.serve.v1 import v1_routes
from transduce.serve.workers import Lane, Workers
from transduce.version import __version__

if TYPE_CHECKING:
    from transduce.language_model.generator import Generator

PAGES: Registry[Any] = Registry("pages")
"""Functions of features that make routes, given the translators, a function that runs work on a thread, and a check of
the key of a request."""
STALLED_SECONDS = 30.0
"""Time after which a step of the scheduler, or work that nobody waits for any more, is taken to be stuck."""
_INSPECTIONS = 8
"""Maximum number of inspections that wait."""
_CLOSE_SECONDS = 1.0
"""Time in which the scheduler's thread ends."""
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def make_app(
    models: ServedModels,
    limits: Limits,
    keys: ApiKeys,
    hosts: Collection[str] | None = None,
    generators: "Mapping[str, Generator] | None" = None,
    suggestions: Path | None = None,
) -> AdmissionMiddleware:
    """Build the application; without API keys, it only answers requests to `hosts`.

    `generators` are language models by their names; either these or the translation models may be missing.
    `suggestions` is the file to which suggested translations are added; without it, they are refused.
    """
    metrics = ServerMetrics()
    scheduler = Scheduler(limits.queue, metrics, limits.cache_bytes)
    state = ServerState()
    workers, inspections = Workers(limits.queue, limits.work_seconds), Lane("inspections", _INSPECTIONS)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await jobs.close()
        scheduler.close(_CLOSE_SECONDS)

    # FastAPI's documentation pages would load scripts from other servers; the description itself is /openapi.json.
    app = FastAPI(
        title="transduce",
        version=__version__,
        description=_describe(limits),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    service = TranslationService(scheduler, limits, workers)
    detector = models.detector()
    jobs = DocumentJobs(service, models, detector)
    if models.models:
        app.include_router(libretranslate_routes(service, models, keys, detector, suggestions))
        app.include_router(document_routes(jobs, keys))
        app.include_router(v1_routes(service, models, keys, detector))
        app.include_router(page_routes())
        translators = {model.name: model.translator for model in models.models}
        for make_routes in PAGES.values():
            app.include_router(make_routes(translators, partial(inspections.run, limits.seconds), keys.check))
    if generators:
        from transduce.serve.completions import completion_routes  # imports torch

        app.include_router(completion_routes(generators, scheduler, limits, keys, workers))

    def stalled_seconds() -> float:
        return max(scheduler.step_seconds, workers.overdue_seconds, inspections.overdue_seconds)

    _add_monitoring_routes(app, stalled_seconds, state, metrics)
    _add_error_handlers(app)
    return AdmissionMiddleware(app, scheduler, limits, metrics, state, None if keys else hosts, bool(keys))


def _describe(limits: Limits) -> str:
    return (
        f"Translation with your own models. Limits per request: {limits.characters:,} characters, "
        f"{limits.sentences:,} lines, {limits.body_bytes:,} bytes of body, beam {limits.beam}, "
        f"{limits.output_tokens:,} output tokens of all hypotheses, {limits.nbest} outputs for each text, "
        f"{limits.seconds:g} s."
    )


def _add_monitoring_routes(
    app: FastAPI, stalled_seconds: Callable[[], float], state: ServerState, metrics: ServerMetrics
) -> None:
    def unavailable(description: str) -> dict[int | str, dict[str, Any]]:
        return {503: {"model": ErrorResponse, "description": description}}

    @app.get("/health", tags=["state"], responses=unavailable("The server must be restarted."))
    async def health() -> dict[str, str]:
        """Whether the server works: requests make progress."""
        if (seconds := stalled_seconds()) > STALLED_SECONDS:
            message = f"no progress for {seconds:.0f} s; restart the server"
            raise HttpError(503, message, int(STALLED_SECONDS))
        return {"status": "ok"}

    @app.get("/ready", tags=["state"], responses=unavailable("The server is shutting down."))
    async def ready() -> dict[str, str]:
        """Whether the server accepts new requests."""
        if state.draining:
            raise HttpError(503, "the server is shutting down")
        return {"status": "ready"}

    @app.get("/metrics", tags=["state"], response_class=PlainTextResponse)
    async def prometheus_metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(metrics.text(), media_type=_PROMETHEUS)


def _add_error_handlers(app: FastAPI) -> None:
    """Answer every error with `error_body`."""

    async def answer(request: Request, error: Exception) -> Response:
        status, message = 500, "internal error"
        headers: Mapping[str, str] | None = None
        if isinstance(error, HttpError):
            status, message, headers = error.status, error.message, error.headers
        elif isinstance(error, HTTPException):
            status, message, headers = error.status_code, str(error.detail), error.headers
            if (status, message) == (404, "Not Found"):
                message = f"this server has no {request.url.path:.100}; /openapi.json lists what it has for its models"
        elif isinstance(error, RequestValidationError):
            status, message = 400, validation_message(error)
        elif isinstance(error, TransduceError):
            status, message = 400, str(error)
        return JSONResponse(error_body(request.url.path, status, message), status, headers)

    for kind in (HttpError, HTTPException, RequestValidationError, TransduceError, Exception):
        app.add_exception_handler(kind, answer)

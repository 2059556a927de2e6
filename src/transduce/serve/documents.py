"""Translation of documents: LibreTranslate's /translate_file, and /v1/documents, which tells the progress.

Documents are translated in the background, and the results are kept for a limited time.
"""

import asyncio
import logging
import re
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.types import Message

from transduce.documents.document import AlignedTranslation, Document, ReadOptions
from transduce.documents.read import read_document
from transduce.errors import DataError
from transduce.files.document_formats import DOCUMENT_SUFFIXES, document_format, translated_name
from transduce.files.languages import language_name
from transduce.serve.api_keys import ApiKeys
from transduce.serve.limits import ClientDisconnectedError, HttpError, Limits, error_location
from transduce.serve.pending import wait_for_disconnect
from transduce.serve.request_parsing import ERROR_RESPONSES, MULTIPART, content_type
from transduce.serve.served_models import AUTO, Detector, ServedModel, ServedModels
from transduce.serve.translation_service import TranslationService
from transduce.translation.markup import TaggedText

_TOGETHER = 32
"""Texts in one request to the scheduler, so that other clients need not wait for an entire document."""
_SAMPLE = 50
"""Texts of which the language is detected."""
_SECONDS_BETWEEN_TRIES = 0.2
_log = logging.getLogger(__name__)


@dataclass
class DocumentJob:
    """A document that is being translated, or has been."""

    id: str
    """An unguessable name: whoever knows it may read the translation."""
    name: str
    """File name of the translation."""
    total: int
    """Number of texts."""
    done: int = 0
    state: Literal["running", "done", "failed"] = "running"
    error: HttpError | None = None
    path: Path | None = None
    """The translated file."""
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None


class DocumentJobs:
    """The documents of all clients."""

    def __init__(self, service: TranslationService, models: ServedModels, detector: Detector, limits: Limits) -> None:
        self._service, self._models, self._detector, self._limits = service, models, detector, limits
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._jobs: dict[str, DocumentJob] = {}
        self._reading = asyncio.Lock()
        """Only one document is parsed at a time, which bounds memory."""

    async def start(self, data: bytes, file_name: str, source: str, target: str) -> DocumentJob:
        """Read a document and start its translation; HttpError if it cannot be read or exceeds a limit."""
        if sum(job.state == "running" for job in self._jobs.values()) >= self._limits.files:
            raise HttpError(429, "too many files are being translated; try again in a moment", retry_after=5)
        name = _safe_name(file_name)
        if source != AUTO:
            self._models.by_languages(source, target)  # an error, if there is none
        if not (kind := document_format(Path(name))):
            suffixes = ", ".join(document_suffixes())
            raise HttpError(400, f"files of this format are not translated; supported are {suffixes}")
        options = ReadOptions(None if source == AUTO else source, target)
        async with self._reading:
            try:
                document = await run_in_threadpool(read_document, kind, data, name, options)
            except DataError as error:
                raise HttpError(400, str(error)) from None
        characters = sum(len(text.text) for text in document.texts)
        if characters > self._limits.file_characters:
            limit = self._limits.file_characters
            raise HttpError(413, f"the file has {characters:,} characters, more than the {limit:,} allowed")
        if source == AUTO:
            sample = " ".join(text.text for text in document.texts[:_SAMPLE])
            source, _ = await self._detector.source(sample, target)
            if source == target:
                raise HttpError(400, f"the file is already in {language_name(target)} ({target})")
        model = self._models.by_languages(source, target)
        job = DocumentJob(
            secrets.token_urlsafe(24), translated_name(Path(name), kind, target), total=len(document.texts)
        )
        self._forget_oldest()
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._run(job, document, model, target))
        return job

    def get(self, name: str) -> DocumentJob:
        """The job with this id; 404 if there is none, or if it was deleted."""
        if job := self._jobs.get(name):
            return job
        raise HttpError(404, "no such file; it may have been deleted")

    def delete(self, job: DocumentJob) -> None:
        """Stop a translation, and delete its file."""
        self._jobs.pop(job.id, None)
        if job.task:
            job.task.cancel()
        if job.path:
            job.path.unlink(missing_ok=True)

    def close(self) -> None:
        for job in list(self._jobs.values()):
            self.delete(job)
        if self._folder:
            self._folder.cleanup()

    async def _run(self, job: DocumentJob, document: Document, model: ServedModel, target: str) -> None:
        try:
            async with asyncio.timeout(self._limits.file_seconds):
                outputs: list[AlignedTranslation] = []
                for texts in self._batches(document.texts):
                    outputs += await self._translate(texts, model, target)
                    job.done = len(outputs)
                content = await run_in_threadpool(document.write, outputs)
                job.path = await run_in_threadpool(self._store, job.id, content)
            job.state = "done"
        except TimeoutError:
            job.error = HttpError(503, f"not finished within {self._limits.file_seconds:g} s; split the file")
        except HttpError as error:
            job.error = error
        except Exception as error:
            _log.error("a document could not be translated: %s", error_location(error))
            job.error = HttpError(500, "internal error")
        finally:
            if job.state == "running":
                job.state = "failed"
            job.finished.set()
            if job.id in self._jobs:
                asyncio.get_running_loop().call_later(60 * self._limits.kept_minutes, self.delete, job)

    def _batches(self, texts: list[TaggedText]) -> Iterator[list[TaggedText]]:
        """Texts in groups within the limits of a request."""
        batch, characters = list[TaggedText](), 0
        for text in texts:
            if batch and (len(batch) == _TOGETHER or characters + len(text.text) > self._limits.characters):
                yield batch
                batch, characters = [], 0
            batch.append(text)
            characters += len(text.text)
        if batch:
            yield batch

    async def _translate(self, texts: list[TaggedText], model: ServedModel, target: str) -> list[AlignedTranslation]:
        aligns = model.translator.any_model.aligns
        align = [aligns and bool(text.tags) for text in texts]
        to = target if model.translator.tagged else None
        while True:
            try:
                pending = await self._service.accept(_never, model, [text.text for text in texts], to=to, align=align)
                break
            except HttpError as error:
                if error.status != 429:
                    raise
            await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
        split = await pending.all()
        results = []
        for lines in split.texts:
            output = split.outputs(lines)[0]
            results.append(AlignedTranslation(output.text, split.aligned_spans(lines, output)))
        return results

    def _store(self, name: str, content: bytes) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="transduce-")
        path = Path(self._folder.name) / name
        path.write_bytes(content)
        return path

    def _forget_oldest(self) -> None:
        finished = [job for job in self._jobs.values() if job.state != "running"]
        for job in finished[: max(0, len(finished) - self._limits.kept_files + 1)]:
            self.delete(job)


def document_suffixes() -> list[str]:
    return [suffix for suffixes in DOCUMENT_SUFFIXES.values() for suffix in suffixes]


def _safe_name(name: str) -> str:
    """A file name without folders and unusual characters, at most 100 characters long."""
    name = re.sub(r"[^\w.() -]", "_", PurePosixPath(name.replace("\\", "/")).name).strip(". ")
    stem, suffix = Path(name).stem[:90], Path(name).suffix[:10]
    return f"{stem or 'file'}{suffix}"


async def _never() -> Message:
    """A `receive` of a client that stays connected."""
    return await asyncio.get_running_loop().create_future()


# Routes

_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such file, or it was deleted."}}
_FIELDS = {
    "type": "object",
    "required": ["file", "target"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "source": {"type": "string", "default": "auto"},
        "target": {"type": "string"},
        "api_key": {"type": "string"},
    },
}
_FORM = {"requestBody": {"required": True, "content": {MULTIPART: {"schema": _FIELDS}}}}


class TranslatedFile(BaseModel):
    """Where the translation of a file is."""

    translatedFileUrl: str


class DocumentStatus(BaseModel):
    """The progress of a document."""

    id: str
    state: str = Field(description="running, done or failed")
    done: int = Field(description="Number of texts that are translated.")
    total: int = Field(description="Number of texts of the document.")
    url: str | None = Field(None, description="Where the translation is, when it is done.")
    error: str | None = None


def document_routes(jobs: DocumentJobs, keys: ApiKeys) -> APIRouter:
    router = APIRouter()

    async def start(request: Request) -> DocumentJob:
        if content_type(request) != MULTIPART:
            raise HttpError(415, f"send a form ({MULTIPART}) with a file")
        try:
            async with request.form(max_files=1, max_fields=20) as form:
                fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
                keys.check(request, fields.get("api_key"))
                file = form.get("file")
                if not isinstance(file, UploadFile) or not file.filename:
                    raise HttpError(400, "file: a file with a name is required")
                data, name = await file.read(), file.filename
        except HTTPException as error:
            raise HttpError(400, str(error.detail)) from None
        target = fields.get("target", "")
        if not target:
            raise HttpError(400, "target: a language code is required")
        return await jobs.start(data, name, fields.get("source") or AUTO, target)

    @router.post("/translate_file", tags=["LibreTranslate"], responses=ERROR_RESPONSES, openapi_extra=_FORM)
    async def translate_file(request: Request) -> TranslatedFile:
        """Translate a file; the answer comes when it is done, and tells where the translation is."""
        job = await start(request)
        waiting = [asyncio.create_task(job.finished.wait()), asyncio.create_task(wait_for_disconnect(request.receive))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            if not job.finished.is_set():
                jobs.delete(job)
        if not job.finished.is_set():
            raise ClientDisconnectedError
        if job.error:
            raise job.error
        return TranslatedFile(translatedFileUrl=str(request.base_url).rstrip("/") + _path(job))

    @router.get("/download_file/{name}", tags=["LibreTranslate"], responses={**ERROR_RESPONSES, **_NOT_FOUND})
    async def download_file(name: str) -> Response:
        """A translated file; its name cannot be guessed, and it is deleted after some time."""
        job = jobs.get(name.partition(".")[0])
        if job.path is None:
            raise HttpError(404, "no such file; it may have been deleted")
        headers = {
            "content-disposition": f"attachment; filename*=UTF-8''{quote(job.name)}",  # never shown as a page
            "x-content-type-options": "nosniff",
            "cache-control": "private, no-store",
        }
        return FileResponse(job.path, media_type="application/octet-stream", headers=headers)

    @router.post("/v1/documents", tags=["v1"], status_code=202, responses=ERROR_RESPONSES, openapi_extra=_FORM)
    async def start_document(request: Request) -> DocumentStatus:
        """Start to translate a file; `GET /v1/documents/{name}` tells the progress."""
        return _status(await start(request))

    @router.get("/v1/documents/{name}", tags=["v1"], responses={**ERROR_RESPONSES, **_NOT_FOUND})
    async def document_status(name: str) -> DocumentStatus:
        """The progress of a document."""
        return _status(jobs.get(name))

    @router.delete("/v1/documents/{name}", tags=["v1"], status_code=204, responses={**ERROR_RESPONSES, **_NOT_FOUND})
    async def delete_document(name: str) -> Response:
        """Stop the translation of a document, or delete it."""
        jobs.delete(jobs.get(name))
        return Response(status_code=204)

    return router


def _path(job: DocumentJob) -> str:
    return f"/download_file/{job.id}.{quote(job.name)}"


def _status(job: DocumentJob) -> DocumentStatus:
    return DocumentStatus(
        id=job.id,
        state=job.state,
        done=job.done,
        total=job.total,
        url=_path(job) if job.state == "done" else None,
        error=job.error.message if job.error else None,
    )

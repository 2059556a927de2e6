"""Translation of documents: LibreTranslate's /translate_file, and /v1/documents, which tells the progress.

Documents are translated in the background, and the results are kept for a limited time.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from transduce.documents.document import AlignedTranslation
from transduce.documents.worker import Fields
from transduce.errors import TransduceError
from transduce.files.document_formats import DOCUMENT_SUFFIXES, document_format, translated_name
from transduce.files.languages import language_name
from transduce.serve.api_keys import ApiKeys
from transduce.serve.document_process import DocumentProcess
from transduce.serve.limits import HttpError, error_location
from transduce.serve.request_parsing import ERROR_RESPONSES, MULTIPART, FormFile, content_type, parse_multipart
from transduce.serve.served_models import ServedModel, ServedModels
from transduce.serve.translation_service import SplitTexts, TranslationService
from transduce.translation.detection import AUTO, DETECTION_COST, Detector

_TOGETHER = 32
"""Texts in one request to the scheduler, so that other clients need not wait for an entire document."""
_SAMPLE = 50
"""Texts of which the language is detected."""
_SECONDS_BETWEEN_TRIES = 0.2
_SMALL = 400_000
"""Number of bytes up to which a document does not wait for larger ones."""
_LARGE_FACTOR = 4
"""How many times the time limit of other work reading or writing a larger document may take."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Text:
    text: str
    tagged: bool
    """Whether it has tags; only such texts are aligned."""
    count: int
    """How many times it is in the document."""


@dataclass
class DocumentJob:
    """A document that is being translated, or has been."""

    id: str
    """An unguessable name: whoever knows it may read the translation."""
    name: str
    """File name of the translation."""
    data: bytes
    """The document, until it is translated."""
    reading: Fields
    """How to read it."""
    texts: list["_Text"] = field(default_factory=list)
    """Its different texts."""
    total: int = 0
    """Number of texts."""
    done: int = 0
    state: Literal["running", "done", "failed"] = "running"
    error: HttpError | None = None
    content: bytes | None = None
    """The translated file."""
    warning: str = ""
    """What it lacks, if anything."""
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None


class DocumentJobs:
    """The documents of all clients."""

    def __init__(self, service: TranslationService, models: ServedModels, detector: Detector) -> None:
        self._service, self._models, self._detector, self._limits = service, models, detector, service.limits
        self._processes = {small: DocumentProcess(service.limits.files) for small in (True, False)}
        """By whether the documents are small."""
        self._jobs: dict[str, DocumentJob] = {}

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
        options = {"source": None if source == AUTO else source, "target": target}
        job = DocumentJob(
            secrets.token_urlsafe(24), translated_name(Path(name), kind, target), data,
            {"format": kind, "name": name, "options": options, "elements": self._limits.file_elements},
        )  # fmt: skip
        self._jobs[job.id] = job  # while it is read, it counts as running
        try:
            answer, _ = await self._work(job, characters=self._limits.file_characters)
            job.texts = [_Text(*fields) for fields in answer["texts"]]
            job.total = sum(text.count for text in job.texts)
            if source == AUTO:
                sample = " ".join(text.text for text in job.texts[:_SAMPLE])[: self._limits.characters]
                source, _ = await self._service.workers.run(DETECTION_COST, self._detector.source, sample, target)
                if source == target:
                    raise HttpError(400, f"the file is already in {language_name(target)} ({target})")
            model = self._models.by_languages(source, target)
        except BaseException:
            self.delete(job)
            raise
        job.task = asyncio.create_task(self._run(job, model, model.target(target, source)))
        return job

    async def _work(self, job: DocumentJob, **fields: Any) -> tuple[Fields, bytes]:
        """Let the process for documents of this size read a document, or write it with `outputs`."""
        small = len(job.data) <= _SMALL
        seconds = min(self._limits.file_seconds, self._limits.work_seconds * (1 if small else _LARGE_FACTOR))
        return await self._processes[small].run(seconds, {**job.reading, **fields}, job.data)

    def get(self, name: str) -> DocumentJob:
        """The job with this id; 404 if there is none, or if it was deleted."""
        if job := self._jobs.get(name):
            return job
        raise HttpError(404, "no such file; it may have been deleted")

    def delete(self, job: DocumentJob) -> None:
        """Stop a translation, and forget its file."""
        self._jobs.pop(job.id, None)
        if job.task:
            job.task.cancel()

    async def close(self) -> None:
        for job in list(self._jobs.values()):
            self.delete(job)
        for process in self._processes.values():
            await process.close()

    async def _run(self, job: DocumentJob, model: ServedModel, to: str | None) -> None:
        try:
            async with asyncio.timeout(self._limits.file_seconds):
                outputs = list[AlignedTranslation]()
                for texts in self._batches(job.texts):
                    outputs += await self._translate(texts, model, to)
                    job.done += sum(text.count for text in texts)
                answer, job.content = await self._work(job, outputs=outputs)
                job.warning = answer["warning"]
            job.state = "done"
            self._forget_oldest()
        except TimeoutError:
            job.error = HttpError(503, f"not finished within {self._limits.file_seconds:g} s; divide the file")
        except HttpError as error:
            job.error = error
        except TransduceError as error:
            job.error = HttpError(400, str(error))
        except Exception as error:
            _log.error("a document could not be translated: %s", error_location(error))
            job.error = HttpError(500, "internal error")
        finally:
            if job.state == "running":
                job.state = "failed"
            job.data, job.texts = b"", []
            job.finished.set()
            if job.id in self._jobs:
                asyncio.get_running_loop().call_later(60 * self._limits.kept_minutes, self.delete, job)

    def _batches(self, texts: Iterable[_Text]) -> Iterator[list[_Text]]:
        """Texts in groups within the limits of a request."""
        batch, characters = list[_Text](), 0
        for text in texts:
            if batch and (len(batch) == _TOGETHER or characters + len(text.text) > self._limits.characters):
                yield batch
                batch, characters = [], 0
            batch.append(text)
            characters += len(text.text)
        if batch:
            yield batch

    async def _translate(self, texts: list[_Text], model: ServedModel, to: str | None) -> list[AlignedTranslation]:
        while True:
            try:
                align = [model.translator.any_model.aligns and text.tagged for text in texts]
                pending = await self._service.accept(model, [text.text for text in texts], to=to, align=align)
                break
            except HttpError as error:
                if error.status != 429:
                    raise
            await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
        split = await pending.all()
        return await self._service.workers.run(split.cost, _aligned, split)

    def _forget_oldest(self) -> None:
        """Delete the oldest files while there are too many, or their sum is too large."""
        finished = [job for job in self._jobs.values() if job.state != "running"]
        sizes = accumulate(len(job.content or b"") for job in reversed(finished))
        for number, (job, size) in enumerate(zip(reversed(finished), sizes, strict=True)):
            if number >= self._limits.kept_files or (number and size > self._limits.kept_bytes):
                self.delete(job)


def document_suffixes() -> list[str]:
    return [suffix for suffixes in DOCUMENT_SUFFIXES.values() for suffix in suffixes]


def _safe_name(name: str) -> str:
    """A file name without folders and unusual characters, at most 100 characters long."""
    name = re.sub(r"[^\w.() -]", "_", PurePosixPath(name.replace("\\", "/")).name).strip(". ")
    stem, suffix = Path(name).stem[:90], Path(name).suffix[:10]
    return f"{stem or 'file'}{suffix}"


def _aligned(split: SplitTexts) -> list[AlignedTranslation]:
    """The best translation of each text."""
    outputs = [(lines, split.outputs(lines)[0]) for lines in split.texts]
    return [AlignedTranslation(output.text, split.aligned_spans(lines, output)) for lines, output in outputs]


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
    warning: str | None = Field(None, description="What the translation lacks, such as the text of scanned pages.")


class DocumentStatus(BaseModel):
    """The progress of a document."""

    id: str
    state: str = Field(description="running, done or failed")
    done: int = Field(description="Number of texts that are translated.")
    total: int = Field(description="Number of texts of the document.")
    url: str | None = Field(None, description="Where the translation is, when it is done.")
    error: str | None = None
    warning: str | None = Field(None, description="What the translation lacks, such as the text of scanned pages.")


def document_routes(jobs: DocumentJobs, keys: ApiKeys) -> APIRouter:
    router = APIRouter()

    async def start(request: Request) -> DocumentJob:
        if content_type(request) != MULTIPART:
            raise HttpError(415, f"send a form ({MULTIPART}) with a file")
        body = await request.body()
        form = dict(parse_multipart(request, body, max_files=1, max_fields=20))
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        keys.check(request, fields.get("api_key"))
        file = form.get("file")
        if not isinstance(file, FormFile) or not file.name:
            raise HttpError(400, "file: a file with a name is required")
        target = fields.get("target", "")
        if not target:
            raise HttpError(400, "target: a language code is required")
        return await jobs.start(file.data, file.name, fields.get("source") or AUTO, target)

    @router.post(
        "/translate_file", tags=["LibreTranslate"], responses=ERROR_RESPONSES, openapi_extra=_FORM,
        response_model_exclude_none=True,
    )  # fmt: skip
    async def translate_file(request: Request) -> TranslatedFile:
        """Translate a file; the answer comes when it is done, and tells where the translation is."""
        job = await start(request)
        try:
            await job.finished.wait()
        finally:
            if not job.finished.is_set():
                jobs.delete(job)
        if job.error:
            raise job.error
        url = str(request.base_url).rstrip("/") + _path(job)
        return TranslatedFile(translatedFileUrl=url, warning=job.warning or None)

    @router.get("/download_file/{name}", tags=["LibreTranslate"], responses={**ERROR_RESPONSES, **_NOT_FOUND})
    async def download_file(name: str) -> Response:
        """A translated file; its name cannot be guessed, and it is deleted after some time."""
        job = jobs.get(name.partition(".")[0])
        if job.content is None:
            raise HttpError(404, "no such file; it may have been deleted")
        headers = {
            "content-disposition": f"attachment; filename*=UTF-8''{quote(job.name)}",  # never shown as a page
            "x-content-type-options": "nosniff",
            "cache-control": "private, no-store",
        }
        return Response(job.content, media_type="application/octet-stream", headers=headers)

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
        warning=job.warning or None,
    )

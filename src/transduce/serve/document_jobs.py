"""Translates documents in the background, and keeps the results for a limited time."""

import asyncio
import logging
import re
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from starlette.concurrency import run_in_threadpool
from starlette.types import Message

from transduce.documents import DOCUMENT_SUFFIXES, document_format
from transduce.documents.document import Document, Output
from transduce.documents.options import ReadOptions
from transduce.documents.read import read_document
from transduce.errors import DataError
from transduce.files.languages import language_name
from transduce.models.given_outputs import can_align
from transduce.serve.detection import Detector
from transduce.serve.errors import HttpError, error_location
from transduce.serve.limits import Limits
from transduce.serve.served_models import AUTO, ServedModel, ServedModels
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
        name = safe_name(file_name)
        if source != AUTO:
            self._models.by_languages(source, target)  # an error, if there is none
        if not (kind := document_format(Path(name))):
            raise HttpError(400, f"files of this format are not translated; supported are {', '.join(suffixes())}")
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
        path = Path(name)
        job = DocumentJob(secrets.token_urlsafe(24), f"{path.stem}.{target}{path.suffix}", total=len(document.texts))
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
        """Delete everything."""
        for job in list(self._jobs.values()):
            self.delete(job)
        if self._folder:
            self._folder.cleanup()

    async def _run(self, job: DocumentJob, document: Document, model: ServedModel, target: str) -> None:
        try:
            async with asyncio.timeout(self._limits.file_seconds):
                outputs: list[Output] = []
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

    async def _translate(self, texts: list[TaggedText], model: ServedModel, target: str) -> list[Output]:
        aligns = can_align(model.translator.any_model)
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
            results.append(Output(output.text, split.aligned_spans(lines, output)))
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


def suffixes() -> list[str]:
    """The suffixes of all formats."""
    return [suffix for suffixes in DOCUMENT_SUFFIXES.values() for suffix in suffixes]


def safe_name(name: str) -> str:
    """A file name without folders and unusual characters, at most 100 characters long."""
    name = re.sub(r"[^\w.() -]", "_", PurePosixPath(name.replace("\\", "/")).name).strip(". ")
    stem, suffix = Path(name).stem[:90], Path(name).suffix[:10]
    return f"{stem or 'file'}{suffix}"


async def _never() -> Message:
    """A `receive` of a client that stays connected."""
    return await asyncio.get_running_loop().create_future()

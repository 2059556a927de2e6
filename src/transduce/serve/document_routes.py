"""Routes that translate files: LibreTranslate's /translate_file, and /v1/documents, which tells the progress."""

import asyncio
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.types import Receive

from transduce.serve.api_keys import ApiKeys
from transduce.serve.document_jobs import DocumentJob, DocumentJobs
from transduce.serve.errors import HttpError
from transduce.serve.form_parsing import MULTIPART
from transduce.serve.request_parsing import ERROR_RESPONSES, bearer_token, content_type
from transduce.serve.served_models import AUTO
from transduce.serve.translation_service import ClientDisconnectedError

_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such file, or it was deleted."}}
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            MULTIPART: {
                "schema": {
                    "type": "object",
                    "required": ["file", "target"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "source": {"type": "string", "default": "auto"},
                        "target": {"type": "string"},
                        "api_key": {"type": "string"},
                    },
                }
            }
        },
    }
}


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
    """The routes."""
    router = APIRouter()

    async def start(request: Request) -> DocumentJob:
        if content_type(request) != MULTIPART:
            raise HttpError(415, f"send a form ({MULTIPART}) with a file")
        try:
            async with request.form(max_files=1, max_fields=20) as form:
                fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
                keys.check(fields.get("api_key"), bearer_token(request))
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
        waiting = [asyncio.create_task(job.finished.wait()), asyncio.create_task(_disconnection(request.receive))]
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


async def _disconnection(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


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

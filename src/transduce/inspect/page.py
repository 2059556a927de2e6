"""The page, built from `web/`: its static files, their routes, and a self-contained version with an inspection."""

import base64
import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from transduce.errors import needs_torch
from transduce.files.html_page import HtmlPage

if TYPE_CHECKING:
    from fastapi import APIRouter, Request, Response

    from transduce.translation.translator import Translator

MEDIA_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; connect-src 'self'; base-uri 'none'"
)
"""The page loads nothing from other servers, whatever text it shows."""
_STYLE = '<link rel="stylesheet" href="static/page.css">'
_SCRIPT = '<script type="module" src="static/page.js"></script>'


def translation_page(translator: "Translator", text: str, to: str | None = None) -> HtmlPage:
    """The page of a translation."""
    with needs_torch():
        from transduce.inspect.inspection import inspect_translation
        from transduce.inspect.request import InspectionRequest
        from transduce.inspect.serialize import serialize

    result = inspect_translation(translator, InspectionRequest(text=text, to=to))
    return HtmlPage(self_contained(serialize(result, translator)))


def static_file(name: str) -> bytes:
    """The content of a static file, one of MEDIA_TYPES."""
    return (files("transduce.inspect") / "static" / name).read_bytes()


def self_contained(inspection: bytes) -> str:
    """The page of a serialized inspection, as a single HTML file with style, script and data, which opens offline."""
    page, style, script = (static_file(name).decode() for name in MEDIA_TYPES)
    assert _STYLE in page
    assert _SCRIPT in page
    data = base64.b64encode(inspection).decode()
    scripts = f'<script type="text/plain" id="inspection">{data}</script>\n<script type="module">{script}</script>'
    return page.replace(_STYLE, f"<style>{style}</style>").replace(_SCRIPT, scripts)


def page_routes() -> "APIRouter":
    """The routes / and /static; needs the extra `transduce[serve]`."""
    from fastapi import APIRouter, HTTPException, Request, Response

    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def page(request: Request) -> Response:
        return _file_response(request, "index.html", {"content-security-policy": _CONTENT_SECURITY_POLICY})

    @router.get("/static/{name}")
    def static(request: Request, name: str) -> Response:
        if name not in MEDIA_TYPES:
            raise HTTPException(404)
        return _file_response(request, name, {})

    return router


@cache
def _compressed(name: str) -> tuple[bytes, str]:
    """A static file compressed with gzip, and its ETag."""
    content = static_file(name)
    return gzip.compress(content, 9, mtime=0), f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _file_response(request: "Request", name: str, headers: dict[str, str]) -> "Response":
    """A static file, or status 304 if the browser has it already; it asks each time, so it never has an old one."""
    from fastapi import Response

    compressed, etag = _compressed(name)
    headers = {"etag": etag, "cache-control": "no-cache", "vary": "accept-encoding", **headers}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    accepted = request.headers.get("accept-encoding", "")
    if "gzip" in accepted.lower():
        headers["content-encoding"] = "gzip"
        return Response(compressed, media_type=MEDIA_TYPES[name], headers=headers)
    return Response(static_file(name), media_type=MEDIA_TYPES[name], headers=headers)

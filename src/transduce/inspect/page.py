"""The page, built from `web/`: its static files, their routes, and a self-contained version with an inspection."""

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.errors import needs_torch
from transduce.files.html_page import HtmlPage

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.requests import Request
    from starlette.responses import Response

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
_SCRIPT = '<script defer src="static/page.js"></script>'


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
    style, script = (static_file(name).decode() for name in ("page.css", "page.js"))
    return _with_data({"inspection": _text(inspection)}, f"<style>{style}</style>", f"<script>{script}</script>")


def write_site(folder: Path, texts: Sequence[tuple[str, str]], inspections: Sequence[tuple[bytes, str]]) -> None:
    """Write a list of texts with their translations, a page for each, and what they share; no server is needed.

    Each inspection has the view with which its page begins: the part of a page's address after the #.
    """
    (folder / "static").mkdir(parents=True)
    for name in ("page.css", "page.js"):
        (folder / "static" / name).write_bytes(static_file(name))
    pages = [{}, *({"inspection": _text(data), "view": view.replace("<", "%3C")} for data, view in inspections)]
    for number, data in enumerate(pages):
        site = json.dumps({"here": number, "texts": texts}).replace("<", "\\u003c")
        content = _with_data({**data, "site": site}, _STYLE, _SCRIPT)
        (folder / (f"{number}.html" if number else "index.html")).write_text(content, encoding="utf-8")


def _text(inspection: bytes) -> str:
    return base64.b64encode(inspection).decode()


def _with_data(data: dict[str, str], style: str, script: str) -> str:
    """The page with data for its script, by names."""
    page = static_file("index.html").decode()
    assert _STYLE in page
    assert _SCRIPT in page
    scripts = [f'<script type="text/plain" id="{name}">{content}</script>' for name, content in data.items()]
    return page.replace(_STYLE, style).replace(_SCRIPT, "\n".join([*scripts, script]))


def page_routes() -> "APIRouter":
    """The routes / and /static; needs the extra `transduce[serve]`."""
    from fastapi import APIRouter
    from starlette.routing import Route

    paths = {name: "/" if name == "index.html" else f"/static/{name}" for name in MEDIA_TYPES}
    return APIRouter(routes=[Route(path, partial(_file_response, name=name)) for name, path in paths.items()])


@cache
def _compressed(name: str) -> tuple[bytes, str]:
    """A static file compressed with gzip, and its ETag."""
    content = static_file(name)
    return gzip.compress(content, 9, mtime=0), f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _file_response(request: "Request", name: str) -> "Response":
    """A static file, or status 304 if the browser has it already; it asks each time, so it never has an old one."""
    from starlette.responses import Response

    content, etag = _compressed(name)
    headers = {"etag": etag, "cache-control": "no-cache", "vary": "accept-encoding"}
    if name == "index.html":
        headers["content-security-policy"] = _CONTENT_SECURITY_POLICY
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", "").lower():
        headers["content-encoding"] = "gzip"
    else:
        content = static_file(name)
    return Response(content, media_type=MEDIA_TYPES[name], headers=headers)

"""The page that shows inspections: its static files, built from `web/`, and a self-contained version with its data."""

import base64
from importlib.resources import files

MEDIA_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}
_STYLE = '<link rel="stylesheet" href="static/page.css">'
_SCRIPT = '<script type="module" src="static/page.js"></script>'


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

"""The page that shows looks: static files, built from `web/`; and one file that holds a look and all it needs."""

import base64
from importlib.resources import files

from transduce.inspect.look import Look
from transduce.inspect.wire import to_bytes
from transduce.translator import Translator

MEDIA_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}
_STYLE = '<link rel="stylesheet" href="static/page.css">'
_SCRIPT = '<script type="module" src="static/page.js"></script>'


def static_file(name: str) -> bytes:
    """One of the page's files; its kind is in MEDIA_TYPES."""
    return (files("transduce.inspect") / "static" / name).read_bytes()


def self_contained(look: Look, translator: Translator) -> str:
    """The page with its style, its script and a look inside, to be opened anywhere, offline."""
    page, style, script = (static_file(name).decode() for name in MEDIA_TYPES)
    assert _STYLE in page
    assert _SCRIPT in page
    data = base64.b64encode(to_bytes(look, translator)).decode()
    held = f'<script type="text/plain" id="look">{data}</script>\n<script type="module">{script}</script>'
    return page.replace(_STYLE, f"<style>{style}</style>").replace(_SCRIPT, held)

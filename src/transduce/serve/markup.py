"""Text inside HTML: what to translate, and the page with the translations in place."""

import html
import re
from collections.abc import Sequence

_UNTOUCHED = re.compile(r"<(script|style|code|pre)\b", re.IGNORECASE)
# A ">" in the value of an attribute does not end a tag. Possessive, so that quotes never closed take no quadratic time.
_TAG = re.compile(r"""<(?:[^>=]|=\s*+(?:"[^"]*+"|'[^']*+'|(?!["'])[^\s>]*+))*+>""")


class Markup:
    """A piece of HTML as runs of text between tags. Each run is translated by itself; tags stay as they are."""

    def __init__(self, source: str) -> None:
        self._parts: list[str] = []
        self._places: list[int] = []
        self.texts: list[str] = []
        """The runs of text that hold more than white space."""
        start = 0
        while start < len(source):
            tag = source.find("<", start)
            tag = len(source) if tag < 0 else tag
            self._add_text(source[start:tag])
            start = _tag_end(source, tag)
            self._parts.append(source[tag:start])

    def filled(self, translations: Sequence[str]) -> str:
        """The HTML with other texts."""
        parts = list(self._parts)
        for place, text in zip(self._places, translations, strict=True):
            parts[place] = parts[place].replace("\0", html.escape(text))
        return "".join(parts)

    def _add_text(self, raw: str) -> None:
        inner = raw.strip()
        if inner:
            before, after = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]
            self._places.append(len(self._parts))
            self.texts.append(" ".join(html.unescape(inner).split()))
            self._parts.append(f"{before}\0{after}")
        else:
            self._parts.append(raw)


def _tag_end(source: str, start: int) -> int:
    """Where the tag, comment or untranslated element that begins at `start` ends; what is never closed takes it all."""
    if source.startswith("<!--", start):
        end = source.find("-->", start)
        return len(source) if end < 0 else end + 3
    if element := _UNTOUCHED.match(source, start):
        closing = re.compile(rf"</{element[1]}\s*>", re.IGNORECASE).search(source, start)
        return closing.end() if closing else len(source)
    tag = _TAG.match(source, start)
    return tag.end() if tag else len(source)

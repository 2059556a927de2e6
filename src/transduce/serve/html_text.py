"""Extracts the text to translate from HTML, and puts the translations in its place."""

import html
import re
from collections.abc import Sequence

_UNTRANSLATED = re.compile(r"<(script|style|code|pre)\b", re.IGNORECASE)
# A ">" in an attribute value does not end a tag. Possessive quantifiers prevent quadratic time for unclosed quotes.
_TAG = re.compile(r"""<(?:[^>=]|=\s*+(?:"[^"]*+"|'[^']*+'|(?!["'])[^\s>]*+))*+>""")


class HtmlText:
    """HTML split into tags and runs of text. Each run is translated separately; tags stay unchanged."""

    def __init__(self, source: str) -> None:
        self._parts: list[str] = []
        self._text_parts: list[int] = []
        """Indices of the parts that contain text; there, "\\0" stands for the text."""
        self.texts: list[str] = []
        """The runs of text that contain more than white space."""
        start = 0
        while start < len(source):
            tag = source.find("<", start)
            tag = len(source) if tag < 0 else tag
            self._add_text(source[start:tag])
            start = _tag_end(source, tag)
            self._parts.append(source[tag:start])

    def fill(self, translations: Sequence[str]) -> str:
        """The HTML with each run of text replaced by its translation."""
        parts = list(self._parts)
        for index, text in zip(self._text_parts, translations, strict=True):
            parts[index] = parts[index].replace("\0", html.escape(text))
        return "".join(parts)

    def _add_text(self, raw: str) -> None:
        inner = raw.strip()
        if inner:
            before, after = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]
            self._text_parts.append(len(self._parts))
            self.texts.append(" ".join(html.unescape(inner).split()))
            self._parts.append(f"{before}\0{after}")
        else:
            self._parts.append(raw)


def _tag_end(source: str, start: int) -> int:
    """The end of the tag, comment or untranslated element at `start`; if it is not closed, the end of the source."""
    if source.startswith("<!--", start):
        end = source.find("-->", start)
        return len(source) if end < 0 else end + 3
    if element := _UNTRANSLATED.match(source, start):
        closing = re.compile(rf"</{element[1]}\s*>", re.IGNORECASE).search(source, start)
        return closing.end() if closing else len(source)
    tag = _TAG.match(source, start)
    return tag.end() if tag else len(source)

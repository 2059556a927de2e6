"""HTML files: the texts between block-level elements, and attributes for people such as `alt`."""

import html
import re

from transduce.documents.document import Document, Splicer, Unit, escape_xml, has_words, tagged_text, text_document
from transduce.documents.encodings import decode_text
from transduce.documents.html_text import HtmlText, attribute_texts
from transduce.documents.options import ReadOptions

_CHARSET = re.compile(rb"""<meta\b[^>]*\bcharset\s*=\s*["']?\s*([A-Za-z0-9_-]+)""", re.IGNORECASE)
_WITHOUT_QUOTES = re.compile(r"""[^\s"'`=<>]+""")
_PAGE_TAG = re.compile(r"<html\b[^<>]*>", re.IGNORECASE)
_LANGUAGE = re.compile(r"""(\s(?:xml:)?lang\s*=\s*["']?)[a-z0-9-]+""", re.IGNORECASE)


def read_html(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read an HTML file; its language becomes the target language."""
    source, encoding = decode_text(data, name, _CHARSET)
    if options.target:
        language = rf"\g<1>{options.target}"
        source = _PAGE_TAG.sub(lambda tag: _LANGUAGE.sub(language, tag[0]), source, count=1)
    page, splicer = HtmlText(source), Splicer(source)
    places: list[tuple[int, int, Unit | None]] = [
        (start, end, None) for (start, end), text in zip(page.places, page.texts, strict=True) if has_words(text)
    ]
    for start, end, quote, text in attribute_texts(source):
        if has_words(tagged := tagged_text(text)):
            places.append((start, end, Unit([tagged], _first if quote else _in_quotes, html.escape)))
    for start, end, unit in sorted(places, key=lambda place: place[0], reverse=True):
        # An attribute in a text is a unit inside it, which the tags of the text then have a marker for.
        splicer.add(start, end, unit or Unit(HtmlText(splicer.raw(start, end)).texts, _first, escape_xml))
    return text_document(splicer, encoding)


def _first(outputs: list[str]) -> str:
    return outputs[0]


def _in_quotes(outputs: list[str]) -> str:
    """The value of an attribute that had no quotes, which it only needs for some characters."""
    return outputs[0] if _WITHOUT_QUOTES.fullmatch(outputs[0]) else f'"{outputs[0]}"'

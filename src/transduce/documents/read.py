"""Read a document of any format; the document that is returned also writes it.

Text and HTML files are read here, all others by the modules that are named after their formats.
"""

import html
import re
from collections.abc import Callable

from transduce.documents.bilingual import read_tmx, read_xliff
from transduce.documents.document import (
    Document,
    ReadOptions,
    Splicer,
    Unit,
    escape_xml,
    has_words,
    read_text,
    text_document,
    text_unit,
)
from transduce.documents.docx import read_docx
from transduce.documents.html_text import HtmlText, attribute_texts
from transduce.documents.markdown import read_markdown
from transduce.documents.odt import read_odt
from transduce.documents.pdf import read_pdf
from transduce.documents.po import read_po
from transduce.documents.subtitles import read_srt, read_vtt
from transduce.files.document_formats import TEXT
from transduce.files.files import decode_text

_CHARSET = re.compile(rb"""<meta\b[^>]*\bcharset\s*=\s*["']?\s*([A-Za-z0-9_-]+)""", re.IGNORECASE)
_WITHOUT_QUOTES = re.compile(r"""[^\s"'`=<>]+""")
_PAGE_TAG = re.compile(r"<html\b[^<>]*>", re.IGNORECASE)
_LANGUAGE = re.compile(r"""(\s(?:xml:)?lang\s*=\s*["']?)[a-z0-9-]+""", re.IGNORECASE)


def read_document(format_: str, data: bytes, name: str, options: ReadOptions) -> Document:
    """Read the content of a file of a format of `DOCUMENT_SUFFIXES`; its name is for errors."""
    return _READERS[format_](data, name, options)


def _read_html(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read an HTML file: the texts between block-level elements, and attributes for people such as `alt`.

    Its language becomes the target language.
    """
    source, encoding = decode_text(data, name, _CHARSET)
    if options.target:
        language = rf"\g<1>{options.target}"
        source = _PAGE_TAG.sub(lambda tag: _LANGUAGE.sub(language, tag[0]), source, count=1)
    page, splicer = HtmlText(source), Splicer(source)
    places: list[tuple[int, int, Unit | None]] = [
        (start, end, None) for (start, end), text in zip(page.places, page.texts, strict=True) if has_words(text)
    ]
    for start, end, quote, text in attribute_texts(source):
        if attribute := text_unit(text, html.escape, "".join if quote else _in_quotes):
            places.append((start, end, attribute))
    for start, end, unit in sorted(places, key=lambda place: place[0], reverse=True):
        # An attribute in a text is a unit inside it, which the tags of the text then have a marker for.
        splicer.add(start, end, unit or Unit(HtmlText(splicer.raw(start, end)).texts, escape_xml))
    return text_document(splicer, encoding)


def _in_quotes(outputs: list[str]) -> str:
    """The value of an attribute that had no quotes, which it only needs for some characters."""
    return outputs[0] if _WITHOUT_QUOTES.fullmatch(outputs[0]) else f'"{outputs[0]}"'


_READERS: dict[str, Callable[[bytes, str, ReadOptions], Document]] = {
    "docx": read_docx,
    "html": _read_html,
    "md": read_markdown,
    "odt": read_odt,
    "po": read_po,
    "srt": read_srt,
    "pdf": read_pdf,
    TEXT: read_text,
    "tmx": read_tmx,
    "vtt": read_vtt,
    "xliff": read_xliff,
}

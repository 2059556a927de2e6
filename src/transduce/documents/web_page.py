"""HTML files: the texts between block-level elements."""

import re

from transduce.documents.document import Document, Splicer, Unit, escape_xml, has_words, text_document
from transduce.documents.encodings import decode_text
from transduce.documents.options import ReadOptions
from transduce.text.html_text import HtmlText

_CHARSET = re.compile(rb"""<meta\b[^>]*\bcharset\s*=\s*["']?\s*([A-Za-z0-9_-]+)""", re.IGNORECASE)


def read_html(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read an HTML file; the options make no difference."""
    source, encoding = decode_text(data, name, _CHARSET)
    page, splicer = HtmlText(source), Splicer(source)
    for (start, end), text in reversed(list(zip(page.places, page.texts, strict=True))):
        if has_words(text):
            splicer.add(start, end, Unit([text], lambda outputs: outputs[0], escape_xml))
    return text_document(splicer, encoding)

"""Read a document of any format; the document that is returned also writes it."""

from collections.abc import Callable

from transduce.documents.bilingual import read_tmx, read_xliff
from transduce.documents.document import Document, ReadOptions, read_text
from transduce.documents.docx import read_docx
from transduce.documents.html_text import read_html
from transduce.documents.markdown import read_markdown
from transduce.documents.odt import read_odt
from transduce.documents.pdf import read_pdf
from transduce.documents.po import read_po
from transduce.documents.subtitles import read_srt, read_vtt
from transduce.files.document_formats import TEXT

_READERS: dict[str, Callable[[bytes, str, ReadOptions], Document]] = {
    "docx": read_docx,
    "html": read_html,
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


def read_document(format_: str, data: bytes, name: str, options: ReadOptions) -> Document:
    """Read the content of a file of a format of `DOCUMENT_SUFFIXES`; its name is for errors."""
    return _READERS[format_](data, name, options)

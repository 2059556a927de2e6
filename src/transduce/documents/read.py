"""Read a document of any format; the document that is returned also writes it."""

from collections.abc import Callable

from transduce.documents import TEXT
from transduce.documents.document import Document
from transduce.documents.docx import read_docx
from transduce.documents.markdown import read_markdown
from transduce.documents.odt import read_odt
from transduce.documents.options import ReadOptions
from transduce.documents.plain import read_text
from transduce.documents.po import read_po
from transduce.documents.subtitles import read_srt, read_vtt
from transduce.documents.tmx import read_tmx
from transduce.documents.web_page import read_html
from transduce.documents.xliff import read_xliff

_READERS: dict[str, Callable[[bytes, str, ReadOptions], Document]] = {
    "docx": read_docx,
    "html": read_html,
    "md": read_markdown,
    "odt": read_odt,
    "po": read_po,
    "srt": read_srt,
    TEXT: read_text,
    "tmx": read_tmx,
    "vtt": read_vtt,
    "xliff": read_xliff,
}


def read_document(format_: str, data: bytes, name: str, options: ReadOptions) -> Document:
    """Read the content of a file of a format of `DOCUMENT_SUFFIXES`; its name is for errors."""
    return _READERS[format_](data, name, options)

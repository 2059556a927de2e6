"""Documents of other programs, translated in place. To add a format, write its reader and add it to the table."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transduce.documents.document import Document as Document  # re-exported
from transduce.documents.document import Output as Output
from transduce.documents.docx import read_docx
from transduce.documents.markdown import read_markdown
from transduce.documents.odt import read_odt
from transduce.documents.options import ReadOptions as ReadOptions
from transduce.documents.plain import read_text
from transduce.documents.po import read_po
from transduce.documents.subtitles import read_srt, read_vtt
from transduce.documents.tmx import read_tmx
from transduce.documents.web_page import read_html
from transduce.documents.xliff import read_xliff


@dataclass(frozen=True)
class DocumentFormat:
    """A file format; the document that `read` returns also writes it."""

    suffixes: tuple[str, ...]
    """Endings of the file names."""
    read: Callable[[bytes, str, ReadOptions], Document]
    """Reads the content of a file; the second argument is its name, for errors."""


TEXT = "text"

DOCUMENT_FORMATS = {
    "docx": DocumentFormat((".docx",), read_docx),
    "html": DocumentFormat((".html", ".htm", ".xhtml"), read_html),
    "md": DocumentFormat((".md", ".markdown"), read_markdown),
    "odt": DocumentFormat((".odt",), read_odt),
    "po": DocumentFormat((".po", ".pot"), read_po),
    "srt": DocumentFormat((".srt",), read_srt),
    TEXT: DocumentFormat((".txt",), read_text),
    "tmx": DocumentFormat((".tmx",), read_tmx),
    "vtt": DocumentFormat((".vtt",), read_vtt),
    "xliff": DocumentFormat((".xliff", ".xlf"), read_xliff),
}


def document_format(path: Path) -> str | None:
    """The name of a file's format by its suffix; None if it is not a document."""
    suffix = path.suffix.lower()
    return next((name for name, one in DOCUMENT_FORMATS.items() if suffix in one.suffixes), None)

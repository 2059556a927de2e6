"""Documents of other programs, translated in place. To add a format, write its reader and add it to the table."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transduce.documents.document import Document as Document  # re-exported
from transduce.documents.document import Output as Output
from transduce.documents.docx import read_docx
from transduce.documents.options import ReadOptions as ReadOptions
from transduce.documents.po import read_po


@dataclass(frozen=True)
class DocumentFormat:
    """A file format; the document that `read` returns also writes it."""

    suffixes: tuple[str, ...]
    """Endings of the file names."""
    read: Callable[[bytes, str, ReadOptions], Document]
    """Reads the content of a file; the second argument is its name, for errors."""


DOCUMENT_FORMATS = {
    "docx": DocumentFormat((".docx",), read_docx),
    "po": DocumentFormat((".po", ".pot"), read_po),
}


def document_format(path: Path) -> str | None:
    """The name of a file's format by its suffix; None if it is not a document."""
    suffix = path.suffix.lower()
    return next((name for name, one in DOCUMENT_FORMATS.items() if suffix in one.suffixes), None)

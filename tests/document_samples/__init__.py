"""Documents of many shapes, made by the libraries of their formats or written out, for tests of translation."""

from document_samples import localization, markup, subtitles  # noqa: F401  # they fill the table
from document_samples.open_document import odt_of
from document_samples.registry import SAMPLES
from document_samples.word import docx_of, paragraph, replace_member, run, written_by_library_docx

__all__ = ["SAMPLES", "docx_of", "odt_of", "paragraph", "replace_member", "run", "written_by_library_docx"]

"""The formats of documents, by the endings of their file names; `documents/` has the readers.

Every translation of a text needs the endings, and only that of a document needs a reader.
"""

from pathlib import Path

from transduce.errors import ConfigError
from transduce.files.files import uncompressed

TEXT = "text"

DOCUMENT_SUFFIXES = {
    "docx": (".docx",),
    "html": (".html", ".htm", ".xhtml"),
    "md": (".md", ".markdown", ".qmd", ".rmd"),
    "odt": (".odt",),
    "pdf": (".pdf",),
    "po": (".po", ".pot"),
    "srt": (".srt",),
    TEXT: (".txt",),
    "tmx": (".tmx",),
    "vtt": (".vtt",),
    "xliff": (".xliff", ".xlf"),
}
"""The formats and the endings of their file names."""
OUTPUT_FORMATS = {"pdf": ("docx", TEXT)}
"""The formats of the translations of a format that is only read; the first is the default."""
BINARY_SUFFIXES = {".doc", ".epub", ".ods", ".odp", ".ppt", ".pptx", ".rtf", ".xls", ".xlsx"}
MARKUP_SUFFIXES = {
    ".adoc", ".arb", ".asciidoc", ".ass", ".csv", ".eml", ".ftl", ".ini", ".ipynb", ".json", ".lrc", ".mdx", ".org",
    ".plist", ".properties", ".resx", ".rst", ".sbv", ".ssa", ".strings", ".svg", ".tex", ".toml", ".ts", ".xcstrings",
    ".xml", ".yaml", ".yml",
}  # fmt: skip
"""Formats that are not translated; as lines of text, their markup would be translated too."""


def document_format(path: Path) -> str | None:
    """The name of a file's format by its suffix; None if it is not a document."""
    suffix = path.suffix.lower()
    return next((name for name, suffixes in DOCUMENT_SUFFIXES.items() if suffix in suffixes), None)


def translated_name(path: Path, name: str, language: str | None) -> str:
    """The file name of the translation of a document of the format `name`: report.docx becomes report.de.docx."""
    suffix = DOCUMENT_SUFFIXES[OUTPUT_FORMATS[name][0]][0] if name in OUTPUT_FORMATS else path.suffix
    return f"{path.stem}.{language or 'translated'}{suffix}"


def require_format_of(path: Path, name: str, out: Path) -> None:
    """Raise an error if the name of an output has the suffix of another format than `name`, the document's.

    It may end like the name of the document, and it need not have a suffix.
    """
    formats = OUTPUT_FORMATS.get(name, (name,))
    suffixes = {suffix for format_ in formats for suffix in DOCUMENT_SUFFIXES[format_]}
    if name not in OUTPUT_FORMATS:
        suffixes.add(uncompressed(path).suffix.lower())
    if out.suffix and out.suffix.lower() not in suffixes:
        told = f"is written as {' or '.join(formats)}" if name in OUTPUT_FORMATS else f"has its format, {name}"
        endings = " or ".join(DOCUMENT_SUFFIXES[name][0] for name in formats)
        raise ConfigError(f"{out}: the translation of {path} {told}; end its name in {endings}")

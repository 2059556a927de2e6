"""PDF files: their paragraphs, which are written as a DOCX file or as text, because a PDF file has no paragraphs.

A page has pieces of text at places. Paragraphs are rebuilt from the places, sizes and lengths of the lines, in the
order of the file. Lines at the top and bottom that are the same on several pages are left out.
"""

import io
import logging
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot
from statistics import median, mode
from typing import Any

from transduce.documents.document import Document, ReadOptions, escape_xml, read_text
from transduce.documents.docx import read_docx
from transduce.errors import DataError
from transduce.files.document_formats import TEXT
from transduce.files.scripts import has_spaces

_REPEATED = 3
"""Number of pages that have a header or footer at the same height, with the same text except for numbers."""
_MARGIN_GAP = 1.5
"""Distance of a header or footer from the text, in font sizes."""
_USUAL_GAP = 1.2
"""Line spacing in font sizes, if a page does not tell it."""
_WIDER_GAP = 1.25
"""Factor of the usual line spacing from which on a gap separates paragraphs."""
_OTHER_SIZE = 0.08
"""Relative difference of font sizes between paragraphs."""
_INDENTATION = 0.8
"""Indentation of the first line of a paragraph, in font sizes."""
_SHORT, _VERY_SHORT = 0.75, 0.5
"""Length of the last line of a paragraph, relative to the median, with and without the end of a sentence."""
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LIGATURE = re.compile("[\ufb00-\ufb06]")
_SENTENCE_END = re.compile(r"[.!?:;。！？…][\"'”’»)\]]*\Z")
_LIST_MARK = re.compile(r"[•●▪■◦‣⁃]|[–*-]\s|\(?(?:\d{1,2}|[a-z])[.)]\s")
_BROKEN_WORD = re.compile("([^\\W\\d_]+)[-\N{HYPHEN}\N{SOFT HYPHEN}]\\Z")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


@dataclass
class _Line:
    """A line of a page, or the joined lines of a paragraph."""

    text: str
    x: float
    y: float
    """Height on the page."""
    size: float
    bold: bool


def read_pdf(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read the text of a PDF file; the translation has the format `options.output`, text or DOCX."""
    pages = _read_pages(data, name)
    if not any(pages):
        raise DataError(f"{name}: no text, only pictures; recognize its text first, for example with ocrmypdf")
    paragraphs = _paragraphs(_without_repeated(pages))
    if options.output == TEXT:
        document = read_text("\n".join(f"{paragraph.text}\n" for paragraph in paragraphs).encode(), name, options)
    else:
        document = read_docx(_as_docx(paragraphs), name, options)
    if empty := [number for number, lines in enumerate(pages, start=1) if not lines]:
        document.warning = f"{name}: no text on {len(empty)} of {len(pages)} pages (first: page {empty[0]})"
    return document


def _read_pages(data: bytes, name: str) -> list[list[_Line]]:
    """The lines of each page, in the order of the file."""
    try:
        import pypdf
        from pypdf.errors import DependencyError
    except ImportError:
        raise DataError(f"{name}: a PDF file needs the pypdf package: pip install 'transduce[documents]'") from None
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns of each flaw that it repairs
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataError(f"{name}: encrypted; remove the password first")
        return [_lines(page) for page in reader.pages]
    except DataError:
        raise
    except DependencyError:
        raise DataError(f"{name}: encrypted with AES; remove the encryption, or: pip install cryptography") from None
    except Exception as error:  # pypdf raises KeyError, TypeError and others for damaged files
        problem = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{name}: damaged, or not a PDF file: {problem:.200}") from None


def _lines(page: Any) -> list[_Line]:
    pieces: list[_Line] = []
    lines: list[_Line] = []

    def end_line() -> None:
        text = " ".join("".join(piece.text for piece in pieces).split())
        if text:
            longest = max(pieces, key=lambda piece: len(piece.text))
            first = next(piece for piece in pieces if piece.text.strip())
            lines.append(_Line(text, first.x, first.y, longest.size, longest.bold))
        pieces.clear()

    def visit(text: str, outer: Sequence[float], inner: Sequence[float], font: Any, size: float) -> None:
        """Add a piece; the two matrices give its place."""
        text = _LIGATURE.sub(lambda ligature: unicodedata.normalize("NFKC", ligature[0]), _NOT_XML.sub("", text))
        x, y = inner[4:]
        x, y = x * outer[0] + y * outer[2] + outer[4], x * outer[1] + y * outer[3] + outer[5]
        size *= hypot(*inner[2:4]) * hypot(*outer[2:4])
        bold = "bold" in str((font or {}).get("/BaseFont", "")).lower()
        first, *others = text.split("\n")
        pieces.append(_Line(first, x, y, size, bold))
        for piece in others:
            end_line()
            pieces.append(_Line(piece, x, y, size, bold))

    page.extract_text(visitor_text=visit)
    end_line()
    return lines


def _without_repeated(pages: Sequence[list[_Line]]) -> list[list[_Line]]:
    """The pages without the lines at their top and bottom that several pages have, at a distance from the others."""

    def key(line: _Line) -> tuple[str, int]:
        return re.sub(r"\d+", "0", line.text), round(line.y)

    def margins(lines: Sequence[_Line]) -> set[tuple[str, int]]:
        heights = sorted({round(line.y) for line in lines})
        gaps = {heights[0]: heights[1] - heights[0], heights[-1]: heights[-1] - heights[-2]} if len(heights) > 1 else {}
        return {key(line) for line in lines if gaps.get(round(line.y), 0) > _MARGIN_GAP * line.size}

    found = [margins(lines) for lines in pages]
    counts = Counter(margin for on_page in found for margin in on_page)
    return [
        [line for line in lines if not (key(line) in on_page and counts[key(line)] >= _REPEATED)]
        for lines, on_page in zip(pages, found, strict=True)
    ]


def _paragraphs(pages: Sequence[list[_Line]]) -> list[_Line]:
    known = {word.lower() for lines in pages for line in lines for word in _WORD.findall(line.text)}
    paragraphs: list[_Line] = []
    for lines in filter(None, pages):
        length = median(len(line.text) for line in lines)
        gaps = [round((above.y - line.y) / line.size, 1) for above, line in pairwise(lines) if line.size]
        usual_gap = mode(gap for gap in [*gaps, _USUAL_GAP] if gap > 0)
        above: _Line | None = None
        for line in lines:
            before = above or (paragraphs[-1] if paragraphs else None)
            if before is None or _starts_paragraph(before, line, above is None, usual_gap, length):
                paragraphs.append(_Line(**vars(line)))
            else:
                paragraphs[-1].text = _joined(paragraphs[-1].text, line.text, known)
            above = line
    return paragraphs


def _starts_paragraph(above: _Line, line: _Line, other_page: bool, usual_gap: float, length: float) -> bool:
    if abs(line.size - above.size) > _OTHER_SIZE * above.size or line.bold != above.bold or _LIST_MARK.match(line.text):
        return True
    ends_sentence = bool(_SENTENCE_END.search(above.text))
    gap = (above.y - line.y) / (line.size or 1)
    if other_page or gap < 0:  # the next page or column
        return ends_sentence or not line.text[0].islower()
    return (
        gap > _WIDER_GAP * usual_gap
        or len(above.text) < _VERY_SHORT * length
        or (ends_sentence and (line.x - above.x > _INDENTATION * line.size or len(above.text) < _SHORT * length))
    )


def _joined(text: str, following: str, known: set[str]) -> str:
    """Two lines of a paragraph as one; a word that was divided at the end of the line is joined."""
    broken, rest = _BROKEN_WORD.search(text), _WORD.match(following)
    if broken and rest:
        # A hyphen is kept in a compound that the document has elsewhere, and before a capital letter.
        compound = f"{broken[1]}-{rest[0]}".lower()
        keeps_hyphen = not rest[0][0].islower() or (compound in known and broken[1].lower() + rest[0] not in known)
        return (text if keeps_hyphen else text[:-1]) + following
    without_space = all(letter.isalnum() and not has_spaces(letter) for letter in text[-1] + following[0])
    return text + ("" if without_space else " ") + following


_WORD_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_MAIN_PART = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
_DECLARATION = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MEMBERS = {
    "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/word/document.xml" ContentType="{_MAIN_PART}"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
    f'Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
}


def _as_docx(paragraphs: Sequence[_Line]) -> bytes:
    """A DOCX file of these paragraphs, with their font sizes."""
    body = "".join(
        f'<w:p><w:r><w:rPr>{"<w:b/>" if paragraph.bold else ""}<w:sz w:val="{max(1, round(2 * paragraph.size))}"/>'
        f'</w:rPr><w:t xml:space="preserve">{escape_xml(paragraph.text)}</w:t></w:r></w:p>'
        for paragraph in paragraphs
    )
    document = f'<w:document xmlns:w="{_WORD_NAMESPACE}"><w:body>{body}<w:sectPr/></w:body></w:document>'
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as package:
        for member, content in {**_MEMBERS, "word/document.xml": document}.items():
            package.writestr(zipfile.ZipInfo(member), _DECLARATION + content, zipfile.ZIP_DEFLATED)
    return written.getvalue()

"""DOCX files: the paragraphs of the text, of tables, text boxes, headers, footers, footnotes, endnotes and comments.

Descriptions of pictures are translated too.

A paragraph consists of runs, each with its formatting. The most frequent formatting of a paragraph is taken as plain
text, other runs and links as inline elements in it. Fields, pictures, references and bookmarks are elements without
text, except for the visible text of links.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transduce.documents.document import Document, ReadOptions, Splicer, Unit, escape_xml, text_unit
from transduce.documents.mixed import TextPieces
from transduce.documents.package import Package, read_members
from transduce.documents.xml_source import Element, XmlText, parse_xml
from transduce.errors import DataError

_PARTS = re.compile(r"word/(?:document|footnotes|endnotes|comments|header\d*|footer\d*)\.xml")
_NAMESPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_CONTAINERS = frozenset({"hyperlink", "ins", "moveTo", "smartTag", "customXml", "sdt", "sdtContent", "bdo", "dir"})
"""Elements of a paragraph that contain runs."""
_WORDS = frozenset({"fldSimple", "oMath"})
"""Fields and formulas, whose text is read as a word and kept."""
_OUTDATED = frozenset({"proofErr", "lastRenderedPageBreak", "softHyphen"})
"""Marks of the original text that a translation does not have."""
_BREAKS = frozenset({"br", "cr", "tab", "ptab"})
"""Parts of a run that separate two texts."""
_DESCRIPTION = re.compile(r"""\s(?:descr|title)\s*=\s*(["'])(.*?)\1""", re.DOTALL)
"""Attributes of a picture that are text for people."""
_UNIMPORTANT = re.compile(r"<\w+:(?:lang|noProof)\b[^>]*/>")
"""Properties of a run in which two runs of the same formatting may differ."""


def read_docx(data: bytes, name: str, _: ReadOptions) -> Document:
    package = Package(data, name)
    if "word/document.xml" not in package.names:
        raise DataError(f"{name}: not a DOCX file: it has no word/document.xml")
    return read_members(package, filter(_PARTS.fullmatch, package.names), name, _splice)


def _splice(source: str, name: str) -> Splicer:
    root, splicer = parse_xml(source, name), Splicer(source)
    for element in reversed(list(root.descendants())):
        if element.name == "docPr":
            _add_descriptions(source, splicer, element)
        elif element.name == "p" and element.namespace in _NAMESPACES:
            content = [child for child in element.children if not (isinstance(child, Element) and child.name == "pPr")]
            paragraph = _Paragraph(source, splicer, content)
            if paragraph.texts:
                unit = Unit(paragraph.texts, escape_xml, paragraph.write)
                splicer.add(content[0].start, content[-1].end, unit)
    return splicer


def _add_descriptions(source: str, splicer: Splicer, picture: Element) -> None:
    """Add the title and the alternative text of a picture or text box."""
    found = _DESCRIPTION.finditer(source, picture.start, picture.inner_start)
    for match in reversed(list(found)):
        if unit := text_unit(html.unescape(match[2]), html.escape):
            splicer.add(*match.span(2), unit)


class _Container(NamedTuple):
    """An element, or a field, with runs inside: the source before them, the runs, and the source after them."""

    name: str
    opening: str
    content: Sequence[Element | XmlText]
    closing: str


class _Kept(NamedTuple):
    """Something that stays as it is, such as a field or a formula."""

    source: str
    text: str = ""
    """Its text, which the translator reads as a word; empty if it has none."""


class _Paragraph(TextPieces):
    """The texts of a paragraph."""

    def __init__(self, source: str, splicer: Splicer, content: Sequence[Element | XmlText]) -> None:
        self._source, self._splicer = source, splicer
        runs = list(_runs(content))
        self._prefix = source[runs[0].start + 1 : runs[0].inner_start].partition("r")[0] if runs else ""
        self._close = f"</{self._prefix}t></{self._prefix}r>"
        self._properties = {""}
        """The properties of all runs."""
        plain = self._most_frequent(content)
        super().__init__(wrap=lambda text: self._open(plain) + text + self._close)
        self._formats = [plain]
        """Properties of the text in each open container, of which the innermost is last."""
        self._run: str | None = None
        """Properties of the open run, if they are not those of its container."""
        if any(child.name == "t" for run in runs for child in run.elements):
            self._add_all(content)
            self.end()

    def write(self, outputs: list[str]) -> str:
        source = super().write(outputs)
        for properties in self._properties:
            source = source.replace(self._open(properties) + self._close, "")  # an empty run
        return source

    def end(self) -> None:
        self._end_run()
        super().end()

    def _open(self, properties: str) -> str:
        return f'<{self._prefix}r>{properties}<{self._prefix}t xml:space="preserve">'

    def _properties_of(self, run: Element) -> str:
        properties = run.child("rPr")
        source = self._source[properties.start : properties.end] if properties else ""
        self._properties.add(source)
        return source

    def _most_frequent(self, content: Sequence[Element | XmlText]) -> str:
        """The properties that most characters of these runs have."""
        counts: Counter[str] = Counter()
        first: dict[str, str] = {}
        for run in content:
            if isinstance(run, Element) and run.name == "r":
                properties = self._properties_of(run)
                key = _UNIMPORTANT.sub("", properties)
                first.setdefault(key, properties)
                counts[key] += sum(len(child.text) for child in run.elements if child.name == "t")
        return first[max(counts, key=lambda key: counts[key])] if counts else ""

    def _add_all(self, content: Sequence[Element | XmlText]) -> None:
        for item in self._grouped(content):
            if isinstance(item, _Kept):
                self._add_element(item)
            elif isinstance(item, _Container):
                self._add_container(item)
            else:
                self._add_run(item)

    def _grouped(self, content: Sequence[Element | XmlText]) -> Iterator[_Kept | _Container | Element]:
        """Runs with text, containers, and everything else."""
        index = 0
        while index < len(content):
            child, end = content[index], index + 1
            if isinstance(child, XmlText):
                if child.text is None:
                    yield _Kept(self._source[child.start : child.end])
            elif child.name == "r" and _field_marks(child):
                separator, field_end = _field(content, index)
                end = field_end + 1
                last = content[field_end]
                instruction = _text_of_runs(content[index:separator], "instrText")
                if separator < field_end and instruction.split()[:1] == ["HYPERLINK"]:
                    opening = self._splicer.raw(child.start, content[separator].end)
                    closing = self._splicer.raw(last.start, last.end)
                    yield _Container("field", opening, content[separator + 1 : field_end], closing)
                else:
                    result = _text_of_runs(content[separator:field_end], "t")
                    yield _Kept(self._splicer.raw(child.start, last.end), result)
            elif child.name == "r":
                yield child
            elif child.name in _CONTAINERS and any(_runs(child.children)):
                yield self._container(child)
            elif child.name not in _OUTDATED:
                raw = self._splicer.raw(child.start, child.end)
                yield _Kept(raw, child.text if child.name in _WORDS else "")
            index = end

    def _container(self, element: Element) -> _Container:
        inner = element.child("sdtContent") or element
        first = next(
            (n for n, child in enumerate(inner.children) if isinstance(child, Element) and child.name[-2:] != "Pr"), 0
        )
        start = inner.children[first].start
        opening, closing = self._source[element.start : start], self._source[inner.inner_end : element.end]
        return _Container(element.name, opening, inner.children[first:], closing)

    def _add_container(self, container: _Container) -> None:
        self._end_run()
        outer, inner = self._formats[-1], self._most_frequent(container.content)
        self.builder.open(container.name, self._close + container.opening + self._open(inner))
        self._formats.append(inner)
        self._add_all(container.content)
        self._end_run()
        self._formats.pop()
        self.builder.close(container.name, self._close + container.closing + self._open(outer))

    def _add_run(self, run: Element) -> None:
        properties = self._properties_of(run)
        for child in run.elements:
            if child.name == "t":
                self._start_run(properties)
                self.add_text(child.text)
            elif child.name == "noBreakHyphen":
                self._start_run(properties)
                self.add_text("\N{NON-BREAKING HYPHEN}")
            elif child.name != "rPr" and child.name not in _OUTDATED:
                source = self._splicer.raw(child.start, child.end)
                source = f"<{self._prefix}r>{properties}{source}</{self._prefix}r>"
                if child.name in _BREAKS and len(self._formats) == 1:
                    self.separate(source)
                else:
                    self._add_element(_Kept(source))

    def _add_element(self, kept: _Kept) -> None:
        """Add an element between two runs."""
        self._end_run()
        self.add_kept(self._close + kept.source + self._open(self._formats[-1]), kept.text)

    def _start_run(self, properties: str) -> None:
        key = _UNIMPORTANT.sub("", properties)
        if self._run is not None and _UNIMPORTANT.sub("", self._run) == key:
            return
        self._end_run()
        if _UNIMPORTANT.sub("", self._formats[-1]) != key:
            self._run = properties
            self.builder.open("run", self._close + self._open(properties))

    def _end_run(self) -> None:
        if self._run is not None:
            self.builder.close("run", self._close + self._open(self._formats[-1]))
            self._run = None


def _runs(content: Sequence[Element | XmlText]) -> Iterator[Element]:
    """The runs of a paragraph, including those in containers."""
    for child in content:
        if isinstance(child, Element):
            if child.name == "r":
                yield child
            elif child.name in _CONTAINERS:
                yield from _runs(child.children)


def _text_of_runs(content: Sequence[Element | XmlText], name: str) -> str:
    """The text of the children of runs with this name."""
    runs = [run for run in content if isinstance(run, Element)]
    return "".join(child.text for run in runs for child in run.elements if child.name == name)


def _field_marks(run: Element) -> list[str]:
    """The begin, separate and end marks of fields in a run."""
    marks = [child.attributes for child in run.elements if child.name == "fldChar"]
    return [value for mark in marks for key, value in mark.items() if key.endswith("fldCharType")]


def _field(content: Sequence[Element | XmlText], start: int) -> tuple[int, int]:
    """The indices of the runs with the separator and the end of the field that starts here.

    Both are the start itself if the field has no separator or does not end among its siblings.
    """
    depth, separator = 0, start
    for index, run in enumerate(content[start:], start):
        for mark in _field_marks(run) if isinstance(run, Element) and run.name == "r" else ():
            depth += {"begin": 1, "end": -1}.get(mark, 0)
            if mark == "separate" and depth == 1:
                separator = index
            if depth <= 0:
                return separator, index
    return start, start

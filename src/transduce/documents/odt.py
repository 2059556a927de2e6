"""ODT files: headings and paragraphs of the text, tables, text boxes, notes, comments, headers and footers."""

from transduce.documents.document import Document, Splicer, Unit, escape_xml
from transduce.documents.mixed import MixedText, Role
from transduce.documents.options import ReadOptions
from transduce.documents.package import Package
from transduce.documents.xml_members import read_members
from transduce.errors import DataError
from transduce.files.xml_source import Element, parse_xml

_TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
_PARTS = ("content.xml", "styles.xml")
_NOT_TEXT = frozenset({"tracked-changes"})
"""Elements whose paragraphs are not part of the text: deleted text."""


def read_odt(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read an ODT file; the options make no difference."""
    package = Package(data, name)
    if "content.xml" not in package.names:
        raise DataError(f"{name}: not an ODT file: it has no content.xml")
    return read_members(package, (member for member in _PARTS if member in package.names), name, _splice)


def _splice(source: str, name: str) -> Splicer:
    root, splicer = parse_xml(source, name), Splicer(source)
    for paragraph in reversed([one for one in root.descendants() if one.namespace == _TEXT and one.name in ("p", "h")]):
        if paragraph.children and not _is_outside(paragraph):
            mixed = MixedText(source, splicer, paragraph.children, _role)
            if mixed.texts:
                splicer.add(paragraph.inner_start, paragraph.inner_end, Unit(mixed.texts, mixed.write, escape_xml))
    return splicer


def _is_outside(element: Element) -> bool:
    parent = element.parent
    while parent is not None:
        if parent.name in _NOT_TEXT:
            return True
        parent = parent.parent
    return False


def _role(element: Element) -> Role:
    if element.namespace != _TEXT:
        return Role("empty")
    if element.name in ("span", "a", "meta"):
        return Role("inline")
    if element.name == "s":
        return Role("text", " ")
    if element.name in ("tab", "line-break"):
        return Role("break")
    return Role("ignored" if element.name == "soft-page-break" else "empty")

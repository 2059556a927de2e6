"""ODT files: headings and paragraphs of the text, tables, text boxes, notes, comments, headers and footers."""

from transduce.documents.document import Document, ReadOptions, Splicer, Unit, escape_xml
from transduce.documents.mixed import MixedText, Role
from transduce.documents.package import Package, read_members
from transduce.documents.xml_source import Element, parse_xml
from transduce.errors import DataError

_TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
_PARTS = ("content.xml", "styles.xml")


def read_odt(data: bytes, name: str, _: ReadOptions) -> Document:
    package = Package(data, name)
    if "content.xml" not in package.names:
        raise DataError(f"{name}: not an ODT file: it has no content.xml")
    return read_members(package, (member for member in _PARTS if member in package.names), name, _splice)


def _splice(source: str, name: str) -> Splicer:
    root, splicer = parse_xml(source, name), Splicer(source)
    for element in reversed(list(root.descendants())):
        is_paragraph = element.namespace == _TEXT and element.name in ("p", "h")
        if is_paragraph and element.children and not _is_deleted(element):
            mixed = MixedText(source, splicer, element.children, _role)
            if mixed.texts:
                splicer.add(element.inner_start, element.inner_end, Unit(mixed.texts, escape_xml, mixed.write))
    return splicer


def _is_deleted(element: Element) -> bool:
    parent = element.parent
    while parent is not None and parent.name != "tracked-changes":
        parent = parent.parent
    return parent is not None


def _role(element: Element) -> Role:
    if element.namespace != _TEXT:
        return Role("empty")
    if element.name in ("span", "a", "meta"):
        return Role("inline")
    if element.name == "s":
        return Role("space")
    if element.name in ("tab", "line-break"):
        return Role("break")
    return Role("ignored" if element.name == "soft-page-break" else "empty")

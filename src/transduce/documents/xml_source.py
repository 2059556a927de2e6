"""XML of unknown origin: decoded, checked, and read as elements that know their places in the source.

The source itself stays as it is, so whoever replaces some of its text leaves every other character unchanged.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from transduce.deadline import check_deadline
from transduce.errors import DataError
from transduce.files.pair_formats import not_well_formed, safe_parser

_DEEPEST = 256
XML_ENCODING = re.compile(rb"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")
"""How XML declares its encoding."""
_TOKEN = re.compile(
    r"(?P<other><!--.*?-->|<\?.*?\?>)|<!\[CDATA\[(?P<cdata>.*?)\]\]>|"
    r"<!DOCTYPE(?:[^\[>\"']++|\"[^\"]*\"|'[^']*'|\[.*?\]\s*(?=>))*+>|"
    r"<(?P<closing>/?)(?P<name>[^\s/>]+)(?P<attributes>(?:[^\"'>]++|\"[^\"]*+\"|'[^']*+')*+)>|(?P<text>[^<]+)",
    re.DOTALL,
)
"""Possessive, because the matcher would keep every character of the attributes to come back to it."""
_ATTRIBUTE = re.compile(r"""([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")


@dataclass(slots=True)
class XmlText:
    """Text with entities decoded, or (if `text` is None) a comment or a processing instruction."""

    start: int
    end: int
    text: str | None


@dataclass(slots=True)
class Element:
    """An element; `start`, `inner_start`, `inner_end` and `end` are its places in the source."""

    name: str
    """Name without the prefix of its namespace."""
    namespace: str
    attributes: dict[str, str]
    start: int
    inner_start: int
    inner_end: int = 0
    end: int = 0
    parent: "Element | None" = None
    children: list["Element | XmlText"] = field(default_factory=list)

    @property
    def elements(self) -> list["Element"]:
        return [child for child in self.children if isinstance(child, Element)]

    def child(self, name: str) -> "Element | None":
        return next((child for child in self.elements if child.name == name), None)

    def descendants(self) -> Iterator["Element"]:
        """All elements inside, in the order of the source."""
        waiting = self.elements[::-1]
        while waiting:
            element = waiting.pop()
            yield element
            waiting += element.elements[::-1]

    @property
    def text(self) -> str:
        parts: list[str] = []
        waiting: list[Element | XmlText] = [self]
        while waiting:
            item = waiting.pop()
            if isinstance(item, Element):
                waiting += item.children[::-1]
            else:
                parts.append(item.text or "")
        return "".join(parts)


def parse_xml(source: str, name: str) -> Element:
    """The root element of a document; `name` is the file's, for errors."""
    parser, depth = safe_parser(name, "utf-8"), 0

    def deeper(*_: object) -> None:
        nonlocal depth
        depth += 1
        check_deadline(1)
        if depth > _DEEPEST:
            raise DataError(f"{name}: elements are nested more than {_DEEPEST} deep")

    def shallower(_: str) -> None:
        nonlocal depth
        depth -= 1

    parser.StartElementHandler, parser.EndElementHandler = deeper, shallower
    try:
        parser.Parse(source.encode(), True)
    except expat.ExpatError as error:
        raise not_well_formed(name, error) from None
    return _tree(source)


def _tree(source: str) -> Element:
    """The elements of XML that is known to be well-formed."""
    document = Element("", "", {}, 0, 0)
    open_ = [(document, {"xml": "http://www.w3.org/XML/1998/namespace"})]
    for token in _TOKEN.finditer(source):
        check_deadline()
        parent, namespaces = open_[-1]
        if token["text"] is not None:
            parent.children.append(XmlText(token.start(), token.end(), html.unescape(token["text"])))
        elif token["cdata"] is not None:
            parent.children.append(XmlText(token.start(), token.end(), token["cdata"]))
        elif token["other"] is not None:
            parent.children.append(XmlText(token.start(), token.end(), None))
        elif token["closing"]:
            parent.inner_end, parent.end = token.start(), token.end()
            open_.pop()
        elif token["name"]:
            raw = token["attributes"]
            attributes = {key: html.unescape(value[1:-1]) for key, value in _ATTRIBUTE.findall(raw)}
            if "xmlns" in raw:
                namespaces = namespaces | {
                    key[6:]: value for key, value in attributes.items() if key == "xmlns" or key.startswith("xmlns:")
                }
            prefix, _, name = token["name"].rpartition(":")
            element = Element(name, namespaces.get(prefix, ""), attributes, token.start(), token.end(), parent=parent)
            parent.children.append(element)
            if raw.endswith("/"):
                element.inner_end = element.end = token.end()
            else:
                open_.append((element, namespaces))
    return document.elements[0]

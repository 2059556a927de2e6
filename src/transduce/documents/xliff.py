"""XLIFF 1.2 and 2: units without a translation get a target; everything else stays."""

from transduce.documents.document import Document, Splicer, Unit, escape_xml, text_document
from transduce.documents.mixed import MixedText, Role, code_role
from transduce.documents.options import ReadOptions
from transduce.errors import DataError
from transduce.files.xml_source import Element, Text, decode_xml, parse_xml

_UNITS = frozenset({"trans-unit", "segment"})
_UNTRANSLATED = frozenset({"new", "needs-translation", "initial"})
"""States of the targets of version 1.2 and of the segments of version 2."""
_PAIRS = {"bpt": "open", "bx": "open", "sc": "open", "ept": "close", "ex": "close", "ec": "close"}


def read_xliff(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read an XLIFF file."""
    source, encoding = decode_xml(data, name)
    root, splicer = parse_xml(source, name), Splicer(source)
    if root.name != "xliff":
        raise DataError(f"{name}: not an XLIFF file: its outermost element is {root.name:.40}")
    _require_languages(root, name, options)
    is_version_2 = root.attributes.get("version", "1.2").startswith("2")
    for file in reversed(root.elements):
        before = len(splicer.units)
        for unit in reversed([one for one in file.descendants() if one.name in _UNITS and _is_translatable(one)]):
            _add(unit, source, splicer, options.retranslate)
        if not is_version_2 and len(splicer.units) > before:
            _add_language(file, "target-language", splicer, options.target)
    if is_version_2 and splicer.units:
        _add_language(root, "trgLang", splicer, options.target)
    return text_document(splicer, encoding)


def _add_language(element: Element, attribute: str, splicer: Splicer, target: str | None) -> None:
    """Let an element tell the target language, unless it does already."""
    if target and attribute not in element.attributes:
        language = f' {attribute}="{target}"'
        place = element.inner_start - 1
        splicer.add(place, place, Unit([], lambda _: language, escape_xml, copy=False))


def _require_languages(root: Element, name: str, options: ReadOptions) -> None:
    options.require_languages(name, root.attributes.get("srcLang"), root.attributes.get("trgLang"))
    for file in root.elements:
        options.require_languages(name, file.attributes.get("source-language"), file.attributes.get("target-language"))


def _is_translatable(unit: Element) -> bool:
    return _inherited(unit, "translate") != "no"


def _inherited(element: Element, attribute: str) -> str | None:
    """The value that an attribute has in an element, or in the nearest one around it that has the attribute."""
    around: Element | None = element
    while around is not None:
        if attribute in around.attributes:
            return around.attributes[attribute]
        around = around.parent
    return None


def _add(unit: Element, source: str, splicer: Splicer, retranslate: bool) -> None:
    original, target = unit.child("source"), unit.child("target")
    if original is None or (target is not None and not retranslate and _is_translated(unit, original, target)):
        return
    lines = _inherited(original, "xml:space") == "preserve"
    mixed = MixedText(source, splicer, original.children, _role, labels=True, lines=lines)
    if not mixed.texts:
        return
    if target is not None and target.inner_start < target.end and source[target.inner_start - 2] != "/":
        splicer.add(target.inner_start, target.inner_end, Unit(mixed.texts, mixed.write, escape_xml, copy=False))
        return
    name = source[original.start + 1 : original.inner_start].split()[0].strip("/>")
    name = f"{name.removesuffix('source')}target"
    if target is not None:  # without content: <target/>
        opening = source[target.start : target.end].removesuffix("/>").rstrip() + ">"
        start, end, indent = target.start, target.end, ""
    else:
        opening, after = f"<{name}>", unit.child("seg-source") or original
        start = end = after.end
        indent = _white_space_before(unit, original)

    def write(outputs: list[str]) -> str:
        return f"{indent}{opening}{mixed.write(outputs)}</{name}>"

    splicer.add(start, end, Unit(mixed.texts, write, escape_xml, copy=False))


def _is_translated(unit: Element, original: Element, target: Element) -> bool:
    """Whether a target has text other than a copy of the source that is marked as untranslated."""
    state = target.attributes.get("state") or unit.attributes.get("state")
    return bool(target.text.strip()) and not (state in _UNTRANSLATED and target.text == original.text)


def _white_space_before(parent: Element, child: Element) -> str:
    before = next((one for one in parent.children if isinstance(one, Text) and one.end == child.start), None)
    return before.text if before and before.text and not before.text.strip() else ""


def _role(element: Element) -> Role:
    attributes = element.attributes
    if element.name in ("g", "pc", "mrk"):
        protected = attributes.get("translate") == "no" or attributes.get("mtype") == "protected"
        return Role("protected" if protected else "inline")
    if element.name in _PAIRS:
        pair = attributes.get("startRef") or attributes.get("rid") or attributes.get("id", "")
        return Role(_PAIRS[element.name], f"pair {pair}")  # type: ignore[arg-type]
    return code_role(element.text or attributes.get("equiv-text") or attributes.get("disp") or "")

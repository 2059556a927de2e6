"""Bilingual XML files: XLIFF 1.2 and 2, and TMX translation memories.

Units without a translation get one; everything else stays.
"""

from transduce.documents.document import Document, ReadOptions, Splicer, Unit, escape_xml, text_document
from transduce.documents.mixed import MixedText, Role, code_role
from transduce.documents.xml_source import XML_ENCODING, Element, XmlText, parse_xml
from transduce.errors import DataError
from transduce.files.files import decode_text
from transduce.translation.markup import TaggedText

_XLIFF_UNITS = frozenset({"trans-unit", "segment"})
_UNTRANSLATED = frozenset({"new", "needs-translation", "initial"})
"""States of the targets of version 1.2 and of the segments of version 2."""
_PAIRS = {"bpt": "open", "bx": "open", "sc": "open", "ept": "close", "ex": "close", "ec": "close"}


def read_xliff(data: bytes, name: str, options: ReadOptions) -> Document:
    source, encoding = decode_text(data, name, XML_ENCODING)
    root, splicer = parse_xml(source, name), Splicer(source)
    if root.name != "xliff":
        raise DataError(f"{name}: not an XLIFF file: its outermost element is {root.name:.40}")
    options.require_languages(name, root.attributes.get("srcLang"), root.attributes.get("trgLang"))
    for file in root.elements:
        options.require_languages(name, file.attributes.get("source-language"), file.attributes.get("target-language"))
    is_version_2 = root.attributes.get("version", "1.2").startswith("2")
    for file in reversed(root.elements):
        before = len(splicer.units)
        for unit in reversed([unit for unit in file.descendants() if unit.name in _XLIFF_UNITS]):
            if _inherited(unit, "translate") != "no":
                _add_xliff_unit(unit, source, splicer, options.retranslate)
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
        splicer.add(place, place, Unit([], escape_xml, lambda _: language, copy=False))


def _inherited(element: Element, attribute: str) -> str | None:
    """The value that an attribute has in an element, or in the nearest one around it that has the attribute."""
    around: Element | None = element
    while around is not None:
        if attribute in around.attributes:
            return around.attributes[attribute]
        around = around.parent
    return None


def _add_xliff_unit(unit: Element, source: str, splicer: Splicer, retranslate: bool) -> None:
    original, target = unit.child("source"), unit.child("target")
    segments, targets = _segments(unit.child("seg-source")), _segments(target)
    is_divided = bool(targets) and targets.keys() <= segments.keys()
    if original is None or (target and not retranslate and not is_divided and _is_translated(unit, original, target)):
        return
    lines = _inherited(original, "xml:space") == "preserve"
    content: MixedText | _SegmentedText
    if segments:
        content = _SegmentedText(source, splicer, unit, retranslate=retranslate, lines=lines)
    else:
        content = MixedText(source, splicer, original.children, _xliff_role, labels=True, lines=lines)
    name = source[original.start + 1 : original.inner_start].split()[0].strip("/>")
    name = f"{name.removesuffix('source')}target"
    if target is None:
        after = unit.child("seg-source") or original
        _add(splicer, after.end, after.end, content, f"{_white_space_before(unit, original)}<{name}>", f"</{name}>")
    elif _is_closed(target, source):
        _add(splicer, target.inner_start, target.inner_end, content)
    else:
        _add(splicer, target.start, target.end, content, _opening(target, source), f"</{name}>")


def _is_closed(element: Element, source: str) -> bool:
    """Whether an element has a closing tag, unlike <target/>."""
    return element.inner_start < element.end and source[element.inner_start - 2] != "/"


def _opening(element: Element, source: str) -> str:
    """The opening tag of an element that gets content."""
    return source[element.start : element.inner_start].removesuffix(">").removesuffix("/").rstrip() + ">"


def _segments(element: Element | None) -> dict[str, Element]:
    """The segments of an element of version 1.2, by the `mid` that the two languages have in common.

    They are ignored if one of them lacks a `mid` of its own, or if there are words outside of them.
    """
    marks = list[Element]()
    waiting = element.children[::-1] if element else []
    while waiting:
        child = waiting.pop()
        if isinstance(child, XmlText):
            if any(map(str.isalpha, child.text or "")):
                return {}
        elif child.attributes.get("mtype") == "seg":
            marks.append(child)
        elif child.name in ("g", "mrk"):
            waiting += child.children[::-1]
    segments = {mark.attributes["mid"]: mark for mark in marks if "mid" in mark.attributes}
    return segments if len(segments) == len(marks) else {}


class _SegmentedText:
    """The content of the target of a unit that is divided into segments; those without a translation get one.

    The elements of the segments are those of the target, or of <seg-source> if the target has others.
    """

    def __init__(self, source: str, splicer: Splicer, unit: Element, *, retranslate: bool, lines: bool) -> None:
        originals, targets = _segments(unit.child("seg-source")), _segments(unit.child("target"))
        frame = unit.child("target" if originals.keys() == targets.keys() else "seg-source")
        assert frame is not None
        self._pieces: list[str | MixedText] = []
        at = frame.inner_start
        for mid, place in _segments(frame).items():
            original, target = originals[mid], targets.get(mid)
            self._pieces.append(source[at : place.start])
            at = place.end
            if target and not retranslate and _is_translated(unit, original, target):
                self._pieces.append(source[target.start : target.end])
                continue
            text = MixedText(source, splicer, original.children, _xliff_role, labels=True, lines=lines)
            name = source[place.start + 1 : place.inner_start].split()[0]
            self._pieces += [_opening(place, source), text, f"</{name}>"]
        self._pieces.append(source[at : frame.inner_end])

    @property
    def texts(self) -> list[TaggedText]:
        return [text for piece in self._pieces if isinstance(piece, MixedText) for text in piece.texts]

    def write(self, outputs: list[str]) -> str:
        """The content with the markup of the translations."""
        waiting = iter(outputs)
        return "".join(
            piece if isinstance(piece, str) else piece.write([next(waiting) for _ in piece.texts])
            for piece in self._pieces
        )


def _add(
    splicer: Splicer, start: int, end: int, content: MixedText | _SegmentedText, opening: str = "", closing: str = ""
) -> None:
    """Put the translations of a text, between these tags, in the place of a part of the source."""
    if content.texts:
        unit = Unit(content.texts, escape_xml, lambda outputs: opening + content.write(outputs) + closing, copy=False)
        splicer.add(start, end, unit)


def _is_translated(unit: Element, original: Element, target: Element) -> bool:
    """Whether a target, or a segment of it, has text other than a copy of the source marked as untranslated."""
    whole = unit.child("target")
    state = (whole and whole.attributes.get("state")) or unit.attributes.get("state")
    return bool(target.text.strip()) and not (state in _UNTRANSLATED and target.text == original.text)


def _white_space_before(parent: Element, child: Element) -> str:
    texts = [node for node in parent.children if isinstance(node, XmlText)]
    before = next((text for text in texts if text.end == child.start), None)
    return before.text if before and before.text and not before.text.strip() else ""


def _xliff_role(element: Element) -> Role:
    attributes = element.attributes
    if element.name in ("g", "pc", "mrk"):
        protected = attributes.get("translate") == "no" or attributes.get("mtype") == "protected"
        return Role("protected" if protected else "inline")
    if element.name in _PAIRS:
        pair = attributes.get("startRef") or attributes.get("rid") or attributes.get("id", "")
        return Role(_PAIRS[element.name], f"pair {pair}")  # type: ignore[arg-type]
    return code_role(element.text or attributes.get("equiv-text") or attributes.get("disp") or "")


def read_tmx(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read a TMX file; the target language must be known."""
    source, encoding = decode_text(data, name, XML_ENCODING)
    root, splicer = parse_xml(source, name), Splicer(source)
    header = root.child("header")
    if root.name != "tmx" or header is None:
        raise DataError(f"{name}: not a TMX file: its outermost element is {root.name:.40}")
    if not options.target:
        raise DataError(f"{name}: a TMX file needs the target language; name it with --to")
    declared = header.attributes.get("srclang", "*all*")
    language = options.source or ("" if declared.lower() == "*all*" else declared)
    for unit in reversed([element for element in root.descendants() if element.name == "tu"]):
        _add_tmx_unit(unit, source, splicer, language, options.target, options.retranslate)
    return text_document(splicer, encoding)


def _add_tmx_unit(unit: Element, source: str, splicer: Splicer, language: str, target: str, retranslate: bool) -> None:
    variants = [element for element in unit.elements if element.name == "tuv" and element.child("seg")]
    translation = next((variant for variant in variants if _speaks(variant, target)), None)
    others = [variant for variant in variants if variant is not translation]
    original = next((variant for variant in others if not language or _speaks(variant, language)), None)
    if original is None:
        return
    segment, existing = original.child("seg"), translation.child("seg") if translation else None
    assert segment is not None
    if existing and existing.text.strip() and not retranslate:
        return
    mixed = MixedText(source, splicer, segment.children, _tmx_role, labels=True)
    if existing:
        _add(splicer, existing.start, existing.end, mixed, "<seg>", "</seg>")
    else:
        opening = f'{_white_space_before(unit, original)}<tuv xml:lang="{target}"><seg>'
        _add(splicer, variants[-1].end, variants[-1].end, mixed, opening, "</seg></tuv>")


def _speaks(variant: Element, language: str) -> bool:
    """Whether a variant is in this language; a region in only one of the two codes is ignored."""
    code = (variant.attributes.get("xml:lang") or variant.attributes.get("lang", "")).lower().replace("_", "-")
    language = language.lower().replace("_", "-")
    return code == language or code.partition("-")[0] == language or language.partition("-")[0] == code


def _tmx_role(element: Element) -> Role:
    if element.name == "hi":
        return Role("inline")
    if element.name in ("bpt", "ept"):
        return Role("open" if element.name == "bpt" else "close", f"pair {element.attributes.get('i', '')}")
    return code_role(element.text)

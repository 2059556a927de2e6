"""TMX translation memories: units without the target language get a variant in it; everything else stays."""

from transduce.documents.document import Document, Splicer, Unit, escape_xml, text_document
from transduce.documents.mixed import MixedText, Role, code_role
from transduce.documents.options import ReadOptions
from transduce.errors import DataError
from transduce.files.xml_source import Element, Text, decode_xml, parse_xml


def read_tmx(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read a TMX file; the target language must be known."""
    source, encoding = decode_xml(data, name)
    root, splicer = parse_xml(source, name), Splicer(source)
    header = root.child("header")
    if root.name != "tmx" or header is None:
        raise DataError(f"{name}: not a TMX file: its outermost element is {root.name:.40}")
    if not options.target:
        raise DataError(f"{name}: a TMX file needs the target language; name it with --to")
    declared = header.attributes.get("srclang", "*all*")
    language = options.source or ("" if declared.lower() == "*all*" else declared)
    for unit in reversed([one for one in root.descendants() if one.name == "tu"]):
        _add(unit, source, splicer, language, options.target, options.retranslate)
    return text_document(splicer, encoding)


def _add(unit: Element, source: str, splicer: Splicer, language: str, target: str, retranslate: bool) -> None:
    variants = [one for one in unit.elements if one.name == "tuv" and one.child("seg")]
    own = next((one for one in variants if _speaks(one, target)), None)
    original = next((one for one in variants if one is not own and (not language or _speaks(one, language))), None)
    if original is None:
        return
    segment, existing = original.child("seg"), own.child("seg") if own else None
    assert segment is not None
    if existing and existing.text.strip() and not retranslate:
        return
    mixed = MixedText(source, splicer, segment.children, _role, labels=True)
    if not mixed.texts:
        return
    if existing:

        def write(outputs: list[str]) -> str:
            return f"<seg>{mixed.write(outputs)}</seg>"

        splicer.add(existing.start, existing.end, Unit(mixed.texts, write, escape_xml, copy=False))
        return
    before = next((one for one in unit.children if isinstance(one, Text) and one.end == original.start), None)
    indent = before.text if before and before.text and not before.text.strip() else ""

    def write_variant(outputs: list[str]) -> str:
        return f'{indent}<tuv xml:lang="{target}"><seg>{mixed.write(outputs)}</seg></tuv>'

    end = variants[-1].end
    splicer.add(end, end, Unit(mixed.texts, write_variant, escape_xml, copy=False))


def _speaks(variant: Element, language: str) -> bool:
    """Whether a variant is in this language; a region in only one of the two codes is ignored."""
    code = (variant.attributes.get("xml:lang") or variant.attributes.get("lang", "")).lower().replace("_", "-")
    language = language.lower().replace("_", "-")
    return code == language or code.partition("-")[0] == language or language.partition("-")[0] == code


def _role(element: Element) -> Role:
    if element.name == "hi":
        return Role("inline")
    if element.name in ("bpt", "ept"):
        return Role("open" if element.name == "bpt" else "close", f"pair {element.attributes.get('i', '')}")
    return code_role(element.text)

"""HTML: the texts between block-level elements, and those of attributes; translations are put in their place."""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, cast

from transduce.deadline import check_deadline
from transduce.documents.document import (
    Document,
    PlacedUnit,
    ReadOptions,
    Splicer,
    Unit,
    escape_xml,
    has_words,
    text_document,
    text_unit,
)
from transduce.files.files import decode_text
from transduce.translation.markup import TaggedText, TaggedTextBuilder
from transduce.translation.stages.tags import BLOCKS

_EMPTY = frozenset({"area", "base", "embed", "img", "input", "param", "source", "track", "wbr"})
_PROTECTED = frozenset({"code", "kbd", "pre", "samp", "tt", "var"})
"""Elements whose content is not translated; also those with translate="no" or class="notranslate"."""

_LONGEST_MARK = 300
"""Characters of a raised mark without letters, such as that of a footnote, which is no word of the sentence."""

_TEXT_ATTRIBUTES = frozenset({
    "alt", "aria-description", "aria-label", "aria-placeholder", "aria-roledescription", "aria-valuetext", "label",
    "placeholder", "summary", "title",
})  # fmt: skip
"""Attributes whose value is text for people."""
_DESCRIPTIONS = frozenset({"description", "og:description", "og:title", "twitter:description", "twitter:title"})
"""Names of <meta> elements whose content is text for people."""
_BUTTONS = frozenset({"button", "reset", "submit"})
"""Types of <input> elements whose value is their label."""

_TAG_START = re.compile(r"<(?=[a-z/!?])", re.IGNORECASE)
_NOT_TEXT = re.compile(r"<(script|style|svg|math)\b", re.IGNORECASE)
# A ">" in an attribute value does not end a tag. Possessive quantifiers prevent quadratic time for unclosed quotes.
_TAG = re.compile(r"""<(?:[^>=]|=\s*+(?:"[^"]*+"|'[^']*+'|(?!["'])[^\s>]*+))*+>""")
_NAME = re.compile(r"<(/?)([^\s/>]*)")
_ATTRIBUTE = re.compile(r"""([^\s=/>"']++)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s>]++))?+""")
# Linear time: white space in a row is matched once, at its start.
_SPACE_BEFORE = re.compile(r"\A(?:\s|&nbsp;)*+")
_SPACE_AFTER = re.compile(r"(?<!\s)(?<!&nbsp;)(?:\s|&nbsp;)*+\Z")
_SIMPLE_TAG = re.compile(r"<[a-z/!?][^<>]*+>", re.IGNORECASE)
_CHARSET = re.compile(rb"""<meta\b[^>]*\bcharset\s*=\s*["']?\s*([A-Za-z0-9_-]+)""", re.IGNORECASE)
_WITHOUT_QUOTES = re.compile(r"""[^\s"'`=<>]+""")
_PAGE_TAG = re.compile(r"<html\b[^<>]*>", re.IGNORECASE)
_LANGUAGE = re.compile(r"""(\s(?:xml:)?lang\s*=\s*["']?)[a-z0-9-]+""", re.IGNORECASE)


_Kind = Literal["text", "open", "close", "empty", "protected", "block"]


class _Part(NamedTuple):
    """A run of text, a tag, or an element with its content."""

    kind: _Kind
    name: str
    source: str
    start: int
    """Its place in the source of the page."""


class HtmlText:
    """HTML split into texts at block-level elements. A text may have inline tags; everything else stays unchanged."""

    def __init__(self, source: str, parts: Sequence[_Part] | None = None) -> None:
        """Split a page; `parts` are those of the page, if it was scanned already."""
        self.source = source
        self.texts: list[TaggedText] = []
        """The texts that contain more than white space and protected elements."""
        self.places: list[tuple[int, int]] = []
        """Start and end of each text in the source."""
        run: list[_Part] = []
        in_navigation = False
        for part in _scan(source) if parts is None else parts:
            if part.name == "nav":
                in_navigation = not part.source.startswith("</")
            if part.kind == "block" or (in_navigation and part.name == "a"):
                self._add_run(run)
                run = []
            else:
                run.append(part)
        self._add_run(run)

    def fill(self, translations: Sequence[str]) -> str:
        """The HTML with each text replaced by the HTML of its translation."""
        parts, at = list[str](), 0
        for (start, end), translation in zip(self.places, translations, strict=True):
            parts += [self.source[at:start], translation]
            at = end
        return "".join([*parts, self.source[at:]])

    def _add_run(self, run: list[_Part]) -> None:
        """Add the text and inline elements between two block-level tags; links side by side are texts of their own."""
        if not run:
            return
        separate, piece = _has_only_links(run), list[_Part]()
        for part in run:
            if separate and part.name == "a":
                self._add_text(piece)
                piece = []
            else:
                piece.append(part)
        self._add_text(piece)

    def _add_text(self, run: list[_Part]) -> None:
        """Add a text with its inline elements."""
        if not any(part.kind == "text" for part in run):
            return
        builder = TaggedTextBuilder()
        for part in run:
            if part.kind == "text":
                builder.add_text(html.unescape(part.source))
            elif part.kind == "open":
                builder.open(part.name, part.source)
            elif part.kind == "close":
                builder.close(part.name, part.source)
            elif part.kind == "protected":
                builder.add_protected(part.source, content_of(part.source))
            else:
                builder.add_empty(part.source)
        tagged = builder.finish()
        if tagged.has_text:
            source = "".join(part.source for part in run)
            before, after = (cast(re.Match[str], end.search(source))[0] for end in (_SPACE_BEFORE, _SPACE_AFTER))
            self.texts.append(tagged)
            self.places.append((run[0].start + len(before), run[0].start + len(source) - len(after)))


def _has_only_links(run: Sequence[_Part]) -> bool:
    """Whether there are several links, with all words in them, as in a menu; in a sentence, words are around links."""
    links, in_link = 0, False
    for part in run:
        if part.name == "a":
            in_link = part.kind == "open"
            links += in_link
        elif part.kind in ("text", "protected") and not in_link and any(map(str.isalnum, html.unescape(part.source))):
            return False
    return links > 1


def attribute_units(tag: str) -> Iterator[PlacedUnit]:
    """The texts in attributes of a tag, with the places of the values without quotes."""
    return _attribute_units(_scan(tag))


def _attribute_units(parts: Iterable[_Part]) -> Iterator[PlacedUnit]:
    """The texts in attributes, such as `alt`, in the order of the source; none of elements that are not translated."""
    for part in parts:
        if "=" not in part.source or not part.name or part.kind not in ("open", "empty", "block"):
            continue
        for match in _attributes_with_text(part.name, part.source) if _TAG.fullmatch(part.source) else ():
            quote = match[2][0] if match[2][0] in "\"'" else ""
            first, last = match.start(2) + len(quote), match.end(2) - len(quote)
            text = html.unescape(part.source[first:last])
            if unit := text_unit(text, html.escape, "".join if quote else _in_quotes):
                yield part.start + first, part.start + last, unit


def _attributes_with_text(name: str, tag: str) -> list[re.Match[str]]:
    if name == "link" or is_protected(name, tag):
        return []
    found = [match for match in _ATTRIBUTE.finditer(tag, len(name) + 1) if match[2] is not None]
    values = {match[1].lower(): match[2].strip("\"'") for match in found}
    texts = set(_TEXT_ATTRIBUTES)
    if name == "input" and values.get("type", "").lower() in _BUTTONS:
        texts.add("value")
    if name == "meta" and (values.get("name") or values.get("property", "")).lower() in _DESCRIPTIONS:
        texts.add("content")
    return [match for match in found if match[1].lower() in texts]


def _scan(source: str) -> Iterator[_Part]:
    at = 0
    while at < len(source):
        check_deadline()
        tag = _TAG_START.search(source, at)
        start = tag.start() if tag else len(source)
        if start > at:
            yield _Part("text", "", source[at:start], at)
        if not tag:
            return
        kind, name, at = _read_tag(source, start)
        yield _Part(kind, name, source[start:at], start)


def _read_tag(source: str, start: int) -> tuple[_Kind, str, int]:
    """The kind, the name and the end of the tag, comment or untranslated element at `start`.

    If it is not closed, it is the rest of the source. This stays at the end, as text after it would become part of it.
    """
    rest: tuple[_Kind, str, int] = "block", "", len(source)
    if source.startswith("<!--", start):
        end = source.find("-->", start)
        return rest if end < 0 else ("empty", "", end + 3)
    if element := _NOT_TEXT.match(source, start):
        closing = re.compile(rf"</{element[1]}\s*>", re.IGNORECASE).search(source, start)
        return ("empty", "", closing.end()) if closing else rest
    tag = _TAG.match(source, start)
    if not tag:
        return rest
    closes, name = cast(re.Match[str], _NAME.match(tag[0])).groups()
    name = name.lower()
    is_block, is_empty = name in BLOCKS or name[:1] in ("!", "?", ""), name in _EMPTY or tag[0].endswith("/>")
    if not closes and not is_empty and is_protected(name, tag[0]):
        element_end = _element_end(source, tag.end(), name)
        return rest if element_end is None else ("block" if is_block else "protected", name, element_end)
    if name == "sup" and not closes:
        mark_end = _element_end(source, tag.end(), name, tag.end() + _LONGEST_MARK)
        if mark_end and not any(map(str.isalpha, content_of(source[start:mark_end]))):
            return "empty", "", mark_end
    return "block" if is_block else "close" if closes else "empty" if is_empty else "open", name, tag.end()


def is_protected(name: str, tag: str) -> bool:
    """Whether the content of the element with this opening tag is not translated."""
    if name in _PROTECTED:
        return True
    if "=" not in tag:
        return False
    attributes = {key.lower(): value.strip("\"'").lower() for key, value in _ATTRIBUTE.findall(tag, len(name) + 1)}
    return attributes.get("translate") == "no" or "notranslate" in attributes.get("class", "").split()


def content_of(element: str) -> str:
    """The text of an element, without tags."""
    return html.unescape(_SIMPLE_TAG.sub("", element))


def _element_end(source: str, start: int, name: str, end: int | None = None) -> int | None:
    """The end of the element whose content starts at `start`; None if it is not closed before `end`."""
    depth = 1
    pattern = re.compile(rf"<(/?){re.escape(name)}(?=[\s/>])[^<>]*+>", re.IGNORECASE)
    for tag in pattern.finditer(source, start, len(source) if end is None else end):
        depth += -1 if tag[1] else 1
        if not depth:
            return tag.end()
    return None


def read_html(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read an HTML file: the texts between block-level elements, and attributes for people such as `alt`.

    Its language becomes the target language.
    """
    source, encoding = decode_text(data, name, _CHARSET)
    if options.target:
        language = rf"\g<1>{options.target}"
        source = _PAGE_TAG.sub(lambda tag: _LANGUAGE.sub(language, tag[0]), source, count=1)
    splicer = Splicer(source)
    add_html(splicer, source, 0, len(source))
    return text_document(splicer, encoding)


def add_html(splicer: Splicer, source: str, start: int, end: int) -> None:
    """Add the texts and attributes of HTML that is a part of a source."""
    parts = [part._replace(start=start + part.start) for part in _scan(source[start:end])]
    page = HtmlText(source, parts)
    places: list[tuple[int, int, Unit | None]] = [
        (*place, None) for place, text in zip(page.places, page.texts, strict=True) if has_words(text)
    ]
    places += _attribute_units(parts)
    for first, last, unit in sorted(places, key=lambda place: place[0], reverse=True):
        # An attribute in a text is a unit inside it, which the tags of the text then have a marker for.
        splicer.add(first, last, unit or Unit(HtmlText(splicer.raw(first, last)).texts, escape_xml))


def _in_quotes(outputs: list[str]) -> str:
    """The value of an attribute that had no quotes, which it only needs for some characters."""
    return outputs[0] if _WITHOUT_QUOTES.fullmatch(outputs[0]) else f'"{outputs[0]}"'

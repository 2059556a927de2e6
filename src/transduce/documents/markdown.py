"""Markdown files: paragraphs, headings, list items, table cells, and the text of HTML blocks.

Code, front matter, link targets, images and reference definitions stay as they are.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from transduce.documents.document import Document, Splicer, Unit, escape_xml, has_words, text_document
from transduce.documents.encodings import decode_text
from transduce.documents.markdown_inline import InlineRange, InlineRanges
from transduce.documents.options import ReadOptions
from transduce.text.html_text import HtmlText
from transduce.text.inline_tags import TaggedText, TaggedTextBuilder

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_LABEL = re.compile(r"\[[ xX]\]\s+|\[\^[^\]\s]+\]:\s+|\[![A-Z]+\]\s*|:::.*\Z", re.DOTALL)
"""What is not text at the start of a paragraph: a checkbox, a footnote's label, the kind of an alert, a directive."""
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]")
_SPECIAL = re.compile(r"[\\`*\[\]<]|(?<!\w)_|_(?!\w)|~(?=~)|&(?=#?\w+;)")
_BLOCK_START = re.compile(r"(?:[-+>#=|:~]|\d+[.)])(?:\s|\Z)|>|=|```|~~~|\|")
_EMPTY_TAG = re.compile(r"<(?:!|\?|(?:area|br|hr|img|input|wbr)\b)|.*/>\Z", re.IGNORECASE | re.DOTALL)
_TAG_NAME = re.compile(r"</?([^\s/>]+)")


class _Place(NamedTuple):
    """Where a block's content is in the source."""

    start: int
    end: int
    prefix: str
    """What the second line begins with, such as the mark of a quotation."""


def read_markdown(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read a Markdown file (CommonMark with tables and strikethrough); the options make no difference."""
    source, encoding = decode_text(data, name)
    splicer = Splicer(source)
    for start, end, unit in reversed(list(_units(source))):
        splicer.add(start, end, unit)
    return text_document(splicer, encoding)


def _units(source: str) -> Iterator[tuple[int, int, Unit]]:
    ranges = InlineRanges()
    front = _FRONT_MATTER.match(source)
    hidden = re.sub(r"[^\n]", "", front[0]) + source[front.end() :] if front else source
    lines = source.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    environment: dict[str, Any] = {}
    row, cursor = -1, 0
    for token in ranges.blocks(hidden, environment):
        if token.map is None or token.type not in ("inline", "html_block"):
            continue
        first, last = token.map
        if token.type == "html_block":
            block = source[starts[first] : starts[last]].rstrip("\n")
            if not token.level and (unit := _html_unit(block)):
                yield starts[first], starts[first] + len(block), unit
            continue
        in_table = token.meta.get("cell", False)
        if in_table:
            row, cursor = first, cursor if row == first else 0
            cell = token.content.replace("|", "\\|")
            at = lines[first].find(cell, cursor)
            cursor = at + len(cell)
            place = _Place(starts[first] + at, starts[first] + cursor, "") if at >= 0 and cell else None
        else:
            place = _locate(token.content, lines[first:last], starts[first:last])
        if place and (unit := _inline_unit(token.content, place, ranges.ranges(token.content, environment), in_table)):
            yield place.start, place.end, unit


def _locate(content: str, lines: Sequence[str], starts: Sequence[int]) -> _Place | None:
    """The place of the lines of a block's content; each is at the end of a line of the source."""
    wanted = content.split("\n")
    if len(wanted) > len(lines):
        return None
    places = [line.rfind(part) for part, line in zip(wanted, lines, strict=False)]
    if min(places) < 0 or not content:
        return None
    last = len(wanted) - 1
    prefix = lines[1][: places[1]] if last else ""
    return _Place(starts[0] + places[0], starts[last] + places[last] + len(wanted[last]), prefix)


def _html_unit(source: str) -> Unit | None:
    block = HtmlText(source)
    if not any(map(has_words, block.texts)):
        return None
    return Unit(block.texts, block.fill, escape_xml)


def _inline_unit(content: str, place: _Place, ranges: list[InlineRange], in_table: bool) -> Unit | None:
    """The unit of a block's content; hard line breaks separate texts."""
    label = _LABEL.match(content)
    begin = label.end() if label else 0
    texts: list[TaggedText] = []
    pieces: list[str | TaggedText] = [content[:begin]]
    builder, at = TaggedTextBuilder(), begin
    for one in [*(one for one in ranges if one.start >= begin), InlineRange("hardbreak", len(content), len(content))]:
        _add_literal(builder, content[at : one.start])
        raw = content[one.start : one.end]
        if one.kind == "hardbreak":
            tagged = builder.finish()
            pieces += [tagged, raw.replace("\n", f"\n{place.prefix}")]
            texts.append(tagged)
            builder = TaggedTextBuilder()
        else:
            _add(builder, one, raw)
        at = one.end
    if not any(map(has_words, texts)):
        return None
    width = max(map(len, content.split("\n"))) if "\n" in content else None

    def write(outputs: list[str]) -> str:
        waiting = iter(outputs)
        text = "".join(piece if isinstance(piece, str) else next(waiting) for piece in pieces)
        return f"\\{text}" if not begin and _BLOCK_START.match(text) and not _BLOCK_START.match(content) else text

    def escape(text: str) -> str:
        text = _SPECIAL.sub(r"\\\g<0>", text).replace("\n", f"\n{place.prefix}")
        return text.replace("|", "\\|") if in_table else text

    return Unit(texts, write, escape, layout=lambda text: _wrap(text, width))


def _add_literal(builder: TaggedTextBuilder, text: str) -> None:
    at = 0
    for footnote in _FOOTNOTE.finditer(text):
        builder.add_text(text[at : footnote.start()])
        builder.add_empty(footnote[0])
        at = footnote.end()
    builder.add_text(text[at:])


def _add(builder: TaggedTextBuilder, one: InlineRange, raw: str) -> None:
    """Add an element of a text, or text that is written with an escape."""
    if one.kind in ("em_open", "strong_open", "s_open", "link_open"):
        builder.open(one.kind.removesuffix("_open"), raw)
    elif one.kind == "link_close" and raw in ("]", "][]"):
        builder.close("link", f"][{one.text}]")  # the label was the text itself, which changes
    elif one.kind in ("em_close", "strong_close", "s_close", "link_close"):
        builder.close(one.kind.removesuffix("_close"), raw)
    elif one.kind == "code_inline":
        builder.add_protected(raw, raw)  # with its backticks, by which the translator knows that it is code
    elif one.kind == "autolink":
        builder.add_protected(raw, one.text)
    elif one.kind in ("text", "softbreak"):
        builder.add_text(one.text)
    elif one.kind == "html_inline" and not _EMPTY_TAG.match(raw) and (name := _TAG_NAME.match(raw)):
        if raw.startswith("</"):
            builder.close(name[1].lower(), raw)
        else:
            builder.open(name[1].lower(), raw)
    else:
        builder.add_empty(raw)


def _wrap(text: str, width: int | None) -> str:
    """The text with newlines instead of spaces, so that lines have about this width and none starts a block."""
    if width is None:
        return text
    lines: list[str] = []
    for word in text.split(" "):
        if lines and (len(lines[-1]) + 1 + len(word) <= width or _BLOCK_START.match(word)):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)

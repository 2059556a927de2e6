"""Markdown files: paragraphs, headings, list items, table cells, alternative texts, titles, and text of HTML blocks.

Code, formulas (between dollar signs), other front matter, link targets and reference definitions stay as they are.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.deadline import check_deadline
from transduce.documents.document import Document, ReadOptions, Splicer, Unit, has_words, tagged_text, text_document
from transduce.documents.front_matter import front_matter_units, without_front_matter
from transduce.documents.html_text import add_html, attribute_units, content_of, is_protected
from transduce.errors import DataError
from transduce.files.files import decode_text
from transduce.translation.markup import TaggedText, TaggedTextBuilder

if TYPE_CHECKING:
    from markdown_it.token import Token

_LABEL = re.compile(
    r"[:~][ \t]+|\[[ xX]\]\s+|\[\^[^\[\]\s]+\]:\s+|\[![A-Z]+\]\s*|:::[^\n]*(?:\n:[\w-]+:[^\n]*)*(?:\n|\Z)"
)
"""What is not text at the start of a paragraph: the mark of a definition, a checkbox, a footnote's label, the kind of
an alert, a directive with its options."""
_DEFINITION = re.compile(r"[:~][ \t]+")
"""What a line begins with that defines the term above it, as Pandoc has it."""
_DIRECTIVE_END = re.compile(r"\n:::+[ \t]*\Z")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]+\]")
_SPECIAL = re.compile(r"[\\`*\[\]<]|(?<!\w)_|_(?!\w)|~(?=~)|&(?=#?\w+;)")
_BLOCK_START = re.compile(r"(?:[-+>#=|:~]|\d+[.)])(?:\s|\Z)|>|=|```|~~~|\|")
_EMPTY_TAG = re.compile(r"<(?:!|\?|(?:area|br|hr|img|input|wbr)\b)|.*/>\Z", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"(?:`[^`]+`|[^ ])+")
"""What a line break does not divide: text without spaces, and code in backticks."""
_MARKER = re.compile('("?)\0([0-9]+)\0')
"""Stands for an alternative text or a title, by its number among those of the block."""
_TITLE = re.compile(r"(\]\(\s*(?:<[^<>\n]*>|[^\s<]\S*)\s+)(?:\"([^\"\\]*)\"|'([^'\\]*)')(\s*\))", re.DOTALL)
"""The end of a link or an image that has a title."""
_TAG_NAME = re.compile(r"</?([^\s/>]+)")
_ADMONITION = re.compile(r'( *)(?:!!!|\?\?\?\+?)[ \t]+[\w -]+(?:"([^"]*)")?[ \t]*\r?')
_DEFINITION_LINE = re.compile(r" {0,3}[:~][ \t]+\S.*")
_INDENTATION = 4
_NESTING = 8
"""Maximum depth of brackets within brackets: the time for each bracket is proportional to it."""
_MATH = re.compile(r"\$\$[^$]+\$\$|\$(?!\s)(?:[^$\\\n]++|\\.)++(?<!\s)\$(?!\d)")
"""A formula, as GitHub and Pandoc recognize it: no amounts of dollars."""


class _Place(NamedTuple):
    """Where a block's content is in the source."""

    start: int
    end: int
    line_break: str
    """What is between two lines: a newline as in the file, and what the second one begins with, e.g. ">"."""


class InlineRange(NamedTuple):
    """An element, half of a pair of delimiters, or text with an escape: its place in the content of a block."""

    kind: str
    start: int
    end: int
    text: str = ""
    """Its text: the code, the decoded character, the source of an image's alternative text or, at the end of a link,
    that of the label."""


def read_markdown(data: bytes, name: str, _: ReadOptions) -> Document:
    """Read a Markdown file: CommonMark with tables and strikethrough."""
    source, encoding = decode_text(data, name)
    splicer = Splicer(source)
    places: list[tuple[int, int, Unit | None]] = [*front_matter_units(source), *_places(source)]
    for start, end, unit in sorted(places, key=lambda place: place[0], reverse=True):
        if unit:
            splicer.add(start, end, unit)
        else:
            add_html(splicer, source, start, end)
    return text_document(splicer, encoding)


def _places(source: str) -> Iterator[tuple[int, int, Unit | None]]:
    """The units of the text; None stands for an HTML block."""
    ranges = InlineRanges()
    lines = source.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    environment: dict[str, Any] = {}
    row, cursor = -1, 0
    for token in ranges.blocks(_without_indentation(without_front_matter(source)), environment):
        if token.map is None or token.type not in ("inline", "html_block"):
            continue
        first, last = token.map
        if token.type == "html_block":
            if not token.level:
                yield starts[first], min(starts[last], len(source)), None
            continue
        in_table, inside = token.meta.get("cell", False), token.meta.get("heading", False)
        if in_table:
            row, cursor = first, cursor if row == first else 0
            cell = token.content.replace("|", "\\|")
            at = lines[first].find(cell, cursor)
            cursor = at + len(cell)
            inside = "|" in lines[first][: max(at, 0)]
            place = _Place(starts[first] + at, starts[first] + cursor, "\n") if at >= 0 and cell else None
        else:
            place = _locate(token.content, lines[first:last], starts[first:last])
        find = partial(ranges.ranges, environment=environment)
        if place and (unit := _inline_unit(token.content, place, find, in_table, inside)):
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
    newline = "\r\n" if lines[0].endswith("\r") else "\n"
    line_break = newline + lines[1][: places[1]] if last else newline
    return _Place(starts[0] + places[0], starts[last] + places[last] + len(wanted[last]), line_break)


def _inline_unit(
    source: str, place: _Place, find: Callable[[str], list[InlineRange]], in_table: bool, inside: bool
) -> Unit | None:
    """The unit of a block's content: hard line breaks separate texts; alternative texts and titles follow them.

    If the content is inside a line, after a "#" or a "|", no other block can start with it.
    """
    content, attributes, html_attributes = _take_attributes(source, find)
    label = _LABEL.match(content)
    begin = label.end() if label else 0
    closing = _DIRECTIVE_END.search(content, begin)
    end = closing.start() if closing else len(content)
    ranges = [_separated(element, content) for element in find(content) if begin <= element.start < end]
    texts: list[TaggedText] = []
    pieces: list[str | TaggedText] = [_continue(content[:begin], place)]
    builder, at, first = TaggedTextBuilder(), begin, begin
    for element in [*ranges, InlineRange("hardbreak", end, len(content))]:
        _add_literal(builder, content[at : element.start])
        raw = _continue(content[element.start : element.end], place)
        at = element.end
        if element.kind != "hardbreak":
            _add(builder, element, raw)
            continue
        tagged, before = builder.finish(), content[first : element.start]
        if has_words(tagged):
            texts.append(tagged)
        pieces += [tagged if has_words(tagged) else _continue(before, place), raw]
        builder, first = TaggedTextBuilder(), element.end
    if not texts and not attributes:
        return None
    has_line_breaks = any(
        "\n" in content[element.start : element.end] for element in ranges if element.kind != "hardbreak"
    )
    width = max(map(len, source.split("\n"))) if has_line_breaks else None

    def write(outputs: list[str]) -> str:
        def attribute(marker: re.Match[str]) -> str:
            quote, text = marker[1], outputs[len(texts) + int(marker[2])]
            return quote + (text.replace('"', '\\"') if quote else text)

        waiting = iter(outputs)
        text = "".join(piece if isinstance(piece, str) else next(waiting) for piece in pieces)
        text = _MARKER.sub(attribute, text)
        text = text.replace("|", "\\|") if in_table else text  # even in code, where nothing else is escaped
        if begin or inside or not _BLOCK_START.match(text) or _BLOCK_START.match(content):
            return text
        return re.sub(r"\A\d*", r"\g<0>\\", text)  # a backslash before a digit would be text

    def escape(text: str) -> str:
        return _continue(_SPECIAL.sub(r"\\\g<0>", text), place)

    in_html = frozenset(len(texts) + index for index in html_attributes)
    return Unit([*texts, *attributes], escape, write, layout=lambda text: _wrap(text, width), attributes=in_html)


def _separated(element: InlineRange, content: str) -> InlineRange:
    """The range; a line break before a definition separates texts, as hard line breaks do."""
    mark = _DEFINITION.match(content, element.end) if element.kind == "softbreak" else None
    return InlineRange("hardbreak", element.start, mark.end()) if mark else element


def _continue(source: str, place: _Place) -> str:
    """Lines of a block, with the line breaks of its place."""
    return source.replace("\n", place.line_break)


def _take_attributes(content: str, find: Callable[[str], list[InlineRange]]) -> tuple[str, list[TaggedText], list[int]]:
    """The content with a marker for each text of an attribute, these texts, and the indices of those in HTML tags.

    Attributes are alternative texts, titles of links and images, and those of HTML tags.
    """
    parts, texts, in_html, at = list[str](), list[TaggedText](), list[int](), 0

    def marker(text: TaggedText) -> str:
        texts.append(text)
        return f"\0{len(texts) - 1}\0"

    def html_tag(tag: str) -> str:
        pieces, at = list[str](), 0
        for start, end, unit in attribute_units(tag):
            in_html.append(len(texts))
            value = marker(unit.texts[0])
            pieces += [tag[at:start], value if tag[start - 1] in "\"'" else f'"{value}"']
            at = end
        return "".join([*pieces, tag[at:]])

    for element in find(content):
        if element.kind not in ("image", "link_close", "html_inline"):
            continue
        raw = content[element.start : element.end]
        if element.kind == "html_inline":
            raw = html_tag(raw)
        if element.kind == "image" and has_words(text := _alternative_text(element.text, find(element.text))):
            rest = raw.removeprefix(f"![{element.text}")
            # A label that was the text itself is written out, because the text changes.
            rest = f"][{element.text}]" if rest in ("]", "][]") else rest
            raw = f"![{marker(text)}{rest}"
        title = _TITLE.search(raw)
        if title and title.end() == len(raw) and has_words(text := tagged_text(title[2] or title[3] or "")):
            raw = f'{raw[: title.start()]}{title[1]}"{marker(text)}"{title[4]}'
        parts += [content[at : element.start], raw]
        at = element.end
    return "".join([*parts, content[at:]]), texts, in_html


def _alternative_text(source: str, ranges: list[InlineRange]) -> TaggedText:
    builder, at = TaggedTextBuilder(), 0
    for element in ranges:
        builder.add_text(source[at : element.start])
        if element.kind == "hardbreak":
            builder.add_text(" ")
        else:
            _add(builder, element, source[element.start : element.end])
        at = element.end
    builder.add_text(source[at:])
    return builder.finish()


def _add_literal(builder: TaggedTextBuilder, text: str) -> None:
    at = 0
    for footnote in _FOOTNOTE.finditer(text):
        builder.add_text(text[at : footnote.start()])
        builder.add_empty(footnote[0])
        at = footnote.end()
    builder.add_text(text[at:])


def _add(builder: TaggedTextBuilder, element: InlineRange, raw: str) -> None:
    """Add an element of a text, or text that is written with an escape."""
    if element.kind in ("em_open", "strong_open", "s_open", "link_open"):
        builder.open(element.kind.removesuffix("_open"), raw)
    elif element.kind == "link_close" and raw in ("]", "][]"):
        builder.close("link", f"][{element.text}]")  # the label was the text itself, which changes
    elif element.kind in ("em_close", "strong_close", "s_close", "link_close"):
        builder.close(element.kind.removesuffix("_close"), raw)
    elif element.kind in ("code_inline", "math", "autolink", "protected"):
        builder.add_protected(raw, element.text)
    elif element.kind in ("text", "softbreak"):
        builder.add_text(element.text)
    elif element.kind == "html_inline" and not _EMPTY_TAG.match(raw) and (name := _TAG_NAME.match(raw)):
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
    for word in _WORD.findall(text):
        if lines and (len(lines[-1]) + 1 + len(word) <= width or _BLOCK_START.match(word)):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


def _without_indentation(source: str) -> str:
    """The Markdown with the text of admonitions and definitions outside of them, line by line.

    CommonMark reads this indented text as code. Admonitions are those of Python-Markdown and MkDocs (a line
    `!!! note "Title"`), definitions those of Pandoc (a line `:   text` below a term). The title of an admonition
    becomes a heading. Every text remains at the end of its line, but for a quotation mark.
    """
    lines, opened = source.split("\n"), list[str]()
    inside: list[int] = []
    """For each admonition or definition around the line: the indentation of its text."""
    for number, (line, following) in enumerate(zip(lines, _indentations_after(lines), strict=True)):
        while line.strip() and inside and _indentation(line) < inside[-1]:
            inside.pop()
        outer = inside[-1] if inside else 0
        start = _ADMONITION.fullmatch(line)
        if start and len(start[1]) - outer < _INDENTATION <= following - len(start[1]):
            inside.append(len(start[1]) + _INDENTATION)
            opened.append(f"# {start[2]}" if start[2] else "")
            continue
        opened.append(line[outer:] if line.strip() else line)
        if _DEFINITION_LINE.fullmatch(opened[-1]) and "".join(lines[max(0, number - 2) : number]).strip():
            inside.append(outer + _INDENTATION)
    return "\n".join(opened)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _indentations_after(lines: list[str]) -> list[int]:
    """For each line, the indentation of the next one that is not empty."""
    indentations, after = list[int](), 0
    for line in reversed(lines):
        indentations.append(after)
        after = _indentation(line) if line.strip() else after
    return indentations[::-1]


class InlineRanges:
    """A Markdown parser that finds the ranges of inline elements."""

    def __init__(self) -> None:
        try:
            from markdown_it import MarkdownIt, rules_inline
        except ImportError:
            raise DataError("Markdown needs the package markdown-it-py: pip install markdown-it-py") from None
        self._blocks = MarkdownIt("commonmark").enable(["table"])
        self._inline = MarkdownIt("commonmark", {"maxNesting": _NESTING}).enable(["strikethrough"])
        self._inline.inline.ruler2.disable("fragments_join")
        rules: dict[str, tuple[str, Callable[[Any, bool], bool]]] = {
            "newline": ("\n", rules_inline.newline),
            "escape": ("\\", rules_inline.escape),
            "backticks": ("`", rules_inline.backtick),
            "strikethrough": ("~", rules_inline.strikethrough.tokenize),
            "emphasis": ("*_", rules_inline.emphasis.tokenize),
            "link": ("[", rules_inline.link),
            "image": ("!", rules_inline.image),
            "autolink": ("<", rules_inline.autolink),
            "html_inline": ("<", rules_inline.html_inline),
            "entity": ("&", rules_inline.entity),
        }
        self._inline.inline.ruler.before("escape", "math", self._observed("math", "$", _math))
        for name, (characters, rule) in rules.items():
            self._inline.inline.ruler.at(name, self._observed(name, characters, rule))
        self._found: list[tuple[Token, int, int, str]] = []

    def blocks(self, source: str, environment: dict[str, Any]) -> list["Token"]:
        """The block tokens of a document; a content has "cell" or "heading" (with "#") in its meta data."""
        self._blocks.core.ruler.enableOnly(["normalize", "block"])
        tokens = self._blocks.parse(source, environment)
        for before, token in pairwise(tokens):
            if before.type in ("td_open", "th_open"):
                token.meta["cell"] = True
            elif before.type == "heading_open" and "#" in before.markup:
                token.meta["heading"] = True
        return tokens

    def ranges(self, content: str, environment: dict[str, Any]) -> list[InlineRange]:
        """The ranges in the content of a block, in order."""
        self._found = []
        self._inline.inline.parse(content, self._inline, environment, [])
        results = []
        for token, start, end, text in sorted(self._found, key=lambda found: found[1:3]):
            if token.type == "strong_open":
                start -= 1  # the first of two characters is a token without content
            elif token.type == "strong_close":
                end += 1
            elif token.type == "text" and not token.content:
                continue
            kind = {"text_special": "text"}.get(token.type, token.type)
            if token.markup == "autolink":
                kind = "autolink"
            results.append(InlineRange(kind, start, end, text or token.content or content[start:end]))
        return list(_protected(results, content))

    def _observed(self, name: str, characters: str, rule: Callable[[Any, bool], bool]) -> Callable[[Any, bool], bool]:
        """The rule for what begins with one of these; it records the places of the tokens that it creates."""

        def observed(state: Any, silent: bool) -> bool:
            if state.src[state.pos] not in characters:
                return False
            check_deadline()
            start, count, known = state.pos, len(state.tokens), len(self._found)
            matched = rule(state, silent)
            if silent or not matched or len(state.tokens) == count:
                return matched
            new = state.tokens[count:]
            if name == "link":
                opening = next(token for token in new if token.type == "link_open")
                label_end = state.md.helpers.parseLinkLabel(state, start, True)
                self._found.append((opening, start, start + 1, ""))
                self._found.append((new[-1], label_end, state.pos, state.src[start + 1 : label_end]))
            elif name in ("emphasis", "strikethrough"):
                end = state.pos
                for token in reversed(new):
                    if end > start:
                        self._found.append((token, end - len(token.content), end, ""))
                        end -= len(token.content)
            elif name == "image":
                del self._found[known:]  # of its alternative text, where places are counted from 0
                self._found.append((new[-1], start, state.pos, ""))
            elif name == "autolink":
                self._found.append((new[-1], start, state.pos, state.src[start + 1 : state.pos - 1]))
            else:
                while name == "newline" and state.src[start - 1 : start] == " ":
                    start -= 1  # white space before the end of a line belongs to the break
                self._found.append((new[-1], start, state.pos, " " if new[-1].type == "softbreak" else ""))
            return matched

        return observed


def _protected(ranges: Sequence[InlineRange], content: str) -> Iterator[InlineRange]:
    """The ranges; those of an HTML element that is not translated, from its opening tag to its closing tag, as one."""
    ends, opened = dict[int, int](), defaultdict[str, list[InlineRange]](list)
    for element in ranges:
        tag = _TAG_NAME.match(element.text) if element.kind == "html_inline" else None
        if not tag or _EMPTY_TAG.match(element.text):
            continue
        name = tag[1].lower()
        if not element.text.startswith("</"):
            opened[name].append(element)
        elif opened[name] and is_protected(name, (opening := opened[name].pop()).text):
            ends[opening.start] = element.end
    at = 0
    for element in ranges:
        if element.start < at:
            continue
        at = ends.get(element.start, at)
        raw = content[element.start : at]
        yield InlineRange("protected", element.start, at, content_of(raw)) if raw else element


def _math(state: Any, silent: bool) -> bool:
    """The rule of formulas, which markdown-it does not have."""
    found = _MATH.match(state.src, state.pos, state.posMax)
    if not found:
        return False
    if not silent:
        state.push("math", "", 0).content = found[0]
    state.pos = found.end()
    return True

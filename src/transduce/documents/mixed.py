"""Text of XML elements with inline elements in it, as XLIFF, TMX and ODT have it."""

import html
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from transduce.documents.document import Splicer, escape_xml, has_words, tagged_text
from transduce.documents.mnemonics import Label, read_label
from transduce.documents.xml_source import Element, XmlText
from transduce.translation.markup import TaggedText, TaggedTextBuilder, all_tags, paired_tags
from transduce.translation.projection import project
from transduce.translation.stages.protect import Protection


class Role(NamedTuple):
    """What an element inside a text is."""

    kind: Literal["inline", "open", "close", "empty", "protected", "space", "break", "ignored"]
    """An element with text; half of a pair; without text; with text to keep; a space; the end of a text; nothing."""
    value: str = ""
    """What open and close have in common; of text to keep, that which the translator reads."""


_PROTECTION = Protection()
_ENDS = ".!?…:。！？"
"""What ends a sentence, or a label such as "Name:"."""
TAG = "<>"
"""Stands for an element without text, or with text to keep: white space next to it is not around the text."""


def code_role(text: str) -> Role:
    """The role of an inline code: a placeholder such as %s is read as a word, any other code has no text."""
    is_placeholder = _PROTECTION.spans(text) == [(0, len(text))] and not text.startswith("<")
    return Role("protected", text) if is_placeholder else Role("empty")


class SpacedText(NamedTuple):
    """The text between two breaks, with the white space around it."""

    before: str
    after: str
    tagged: TaggedText
    label: Label | None = None
    """If the text has a mnemonic: the text with it."""

    def write(self, output: str) -> str:
        """The markup of the translation with the white space around it."""
        if self.label and self.tagged.tags:
            output = self.label._replace(mark=escape_xml(self.label.mark)).write(output)
        elif self.label:
            output = escape_xml(self.label.write(html.unescape(output)))
        return self.before + output + self.after


class TextPieces:
    """The texts of a paragraph, and the source between them, which are added from left to right.

    `labels` are texts of a program, which may have mnemonics. `wrap` makes markup of the markup of a text.
    """

    def __init__(self, *, labels: bool = False, wrap: Callable[[str], str] = str) -> None:
        self._labels, self._wrap = labels, wrap
        self._pieces: list[SpacedText | str] = []
        self._start()

    @property
    def texts(self) -> list[TaggedText]:
        """The texts with words."""
        return [piece.tagged for piece in self._pieces if isinstance(piece, SpacedText)]

    def write(self, outputs: list[str]) -> str:
        """The content with the markup of the translations."""
        waiting = iter(outputs)
        return "".join(
            piece if isinstance(piece, str) else self._wrap(piece.write(next(waiting))) for piece in self._pieces
        )

    def add_text(self, text: str) -> None:
        if text.strip():
            self._last = text.rstrip()[-1]
        self._text.append(text)
        self.builder.add_text(text)

    def add_kept(self, source: str, word: str = "") -> None:
        """Add an element that stays as it is; the translator reads it as this word, if there is one."""
        self._text.append(TAG)
        if word.strip():
            self.builder.add_protected(source, word)
        else:
            self.builder.add_empty(source)

    def add_space(self, tag: str) -> None:
        """Add an element without content that stands for white space, by its opening tag."""
        self._text.append(TAG)
        self.builder.open("space", tag.removesuffix(">").removesuffix("/"))
        self.builder.add_text(" ")  # inside the tag, where it means nothing
        self.builder.close("space", "/>")

    def separate(self, source: str) -> None:
        """End a text with this source."""
        self.end()
        self._pieces.append(source)

    def end(self) -> None:
        """End a text: what is added next belongs to another one."""
        tagged, text = self.builder.finish(), "".join(self._text)
        before = text[: len(text) - len(text.lstrip())]
        after = text[len(text.rstrip()) :] if text.strip() else ""
        label = read_label(tagged.text) if self._labels else None
        if label and label.text != tagged.text and not tagged.tags:
            self._pieces.append(SpacedText(before, after, tagged_text(label.text), label))
        elif label and label.mark and not label.doubles and _take_mark(tagged, label):
            self._pieces.append(SpacedText(before, after, tagged, label))
        elif has_words(tagged):
            self._pieces.append(SpacedText(before, after, tagged))
        elif text or tagged.tags:
            self._pieces.append(self._wrap(before + project(tagged, tagged.text, (), escape_xml) + after))
        self._start()

    def _start(self) -> None:
        self.builder, self._text = TaggedTextBuilder("&#160;"), list[str]()
        self._last = ""
        """The last character of the text, without white space."""


class MixedText(TextPieces):
    """The texts in the content of an element; with `lines`, a newline ends a text."""

    def __init__(
        self,
        source: str,
        splicer: Splicer,
        content: Sequence[Element | XmlText],
        role: Callable[[Element], Role],
        *,
        labels: bool = False,
        lines: bool = False,
    ) -> None:
        super().__init__(labels=labels)
        self._source, self._splicer, self._role, self._lines = source, splicer, role, lines
        self._add_all(content, outermost=True)
        self.end()

    def _add_all(self, content: Sequence[Element | XmlText], outermost: bool) -> None:
        """Add the content of a paragraph, or of an element in it.

        An element for a space is an ordinary space, unless it is at the start of a text, at the end of a sentence,
        where it separates texts, or in an element without words, such as an underlined place to fill in.
        """
        is_blank = not any(
            child.children if isinstance(child, Element) else child.text and child.text.strip() for child in content
        )
        for child in content:
            if isinstance(child, XmlText):
                if child.text is None:
                    self.add_kept(self._source[child.start : child.end])
                else:
                    self._add_lines(child.text, outermost)
                continue
            role, raw = self._role(child), self._splicer.raw(child.start, child.end)
            if role.kind == "inline" and child.children:
                self.builder.open(child.name, self._source[child.start : child.inner_start])
                self._add_all(child.children, outermost=False)
                self.builder.close(child.name, self._source[child.inner_end : child.end])
            elif role.kind == "open":
                self.builder.open(role.value, raw)
            elif role.kind == "close":
                self.builder.close(role.value, raw)
            elif role.kind == "protected":
                self.add_kept(raw, role.value or child.text)
            elif role.kind == "space" and not is_blank and self._last not in (_ENDS if outermost else ""):
                self.add_text(" ")
            elif role.kind in ("space", "break") and outermost:
                self.separate(raw)
            elif role.kind == "space":
                self.add_space(self._source[child.start : child.inner_start])
            elif role.kind != "ignored":
                self.add_kept(raw)

    def _add_lines(self, text: str, outermost: bool) -> None:
        first, *others = text.split("\n") if self._lines and outermost else [text]
        self._add_html(first)
        for line in others:
            self.separate("\n")
            self._add_html(line)

    def _add_html(self, text: str) -> None:
        """Add text; the pairs of HTML tags in it are elements too, as in the messages of a web page."""
        at = 0
        for tag in paired_tags(text):
            self.add_text(text[at : tag.start()])
            add = self.builder.close if tag["closes"] else self.builder.open
            add(f"html {tag['name']}", escape_xml(tag[0]))
            at = tag.end()
        self.add_text(text[at:])


def _take_mark(tagged: TaggedText, label: Label) -> bool:
    """Take the mark of a mnemonic out of a text with tags; false if it is in text to keep, or beside HTML in text."""
    characters = zip(tagged.text, label.text, strict=False)
    place = next(index for index, (marked, unmarked) in enumerate(characters) if marked != unmarked)
    is_kept = any(start <= place < end for start, end, _ in tagged.protected)
    if is_kept or any(tag.opening.startswith("&lt;") for tag in all_tags(tagged.tags)):
        return False
    tagged.text = label.text
    for tag in all_tags(tagged.tags):
        tag.start, tag.end = tag.start - (tag.start > place), tag.end - (tag.end > place)
    return True

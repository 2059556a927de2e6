"""Inline tags: taken out of a sentence before it is translated."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

_IN_SPACES = re.compile(r"\A(\s*)(\S(?:.*\S)?)(\s*)\Z", re.DOTALL)
"""A text, and the white space around it."""


@dataclass
class Tag:
    """An inline element, or something without content such as an image, a comment or an unpaired tag."""

    start: int
    end: int
    """Its range of characters in the text; empty if it has no text."""
    opening: str
    """HTML of the opening tag; of a protected element, all of its HTML."""
    closing: str = ""
    protected: bool = False
    """Whether its content must not be translated."""
    space: str = ""
    """HTML of the white space in it, if that is the space between two words of the text."""
    children: list["Tag"] = field(default_factory=list)


@dataclass
class TaggedText:
    """A text without its tags, with entities decoded and each run of white space as one space."""

    text: str
    tags: list[Tag]
    """The outermost tags, in the order of the source."""

    @property
    def protected(self) -> list[tuple[int, int, str]]:
        """Ranges of characters that must come back unchanged, with the HTML that replaces them in the end."""
        return [(tag.start, tag.end, tag.opening) for tag in protected_tags(self.tags)]

    @property
    def has_text(self) -> bool:
        """Whether there is text to translate outside of the protected ranges."""
        ends = [0, *(end for _, end, _ in self.protected)]
        starts = [*(start for start, _, _ in self.protected), len(self.text)]
        return any(self.text[end:start].strip() for end, start in zip(ends, starts, strict=True))


def all_tags(tags: Sequence[Tag]) -> Iterator[Tag]:
    """Tags and their descendants."""
    return (tag for tag, _ in _walk(tags))


def protected_tags(tags: Sequence[Tag]) -> list[Tag]:
    """The protected elements among tags and their descendants, in the order of the text."""
    return sorted((tag for tag in all_tags(tags) if tag.protected), key=lambda tag: tag.start)


class TaggedTextBuilder:
    """Builds a TaggedText from text and tags, in the order of the source."""

    def __init__(self, no_break_space: str = "&nbsp;") -> None:
        self._no_break_space = no_break_space
        """How the markup language writes a no-break space."""
        self._parts: list[str] = []
        self._length = 0
        self._root = Tag(0, 0, "")
        self._open: list[tuple[str, Tag]] = [("", self._root)]
        """Names and tags of the elements that are not closed, from the outermost inwards."""
        self._names: Counter[str] = Counter()

    def add_text(self, text: str) -> None:
        """Add text, with entities decoded."""
        self._parts.append(text)
        self._length += len(text)

    def open(self, name: str, opening: str) -> None:
        """Start an element."""
        self._open.append((name, self._add(opening)))
        self._names[name] += 1

    def close(self, name: str, closing: str) -> None:
        """End the innermost element with this name; elements in it that are not closed become unpaired tags."""
        if not self._names[name]:
            self.add_empty(closing)
            return
        index = next(index for index in reversed(range(len(self._open))) if self._open[index][0] == name)
        self._leave_open(index + 1)
        _, tag = self._open.pop()
        self._names[name] -= 1
        tag.closing, tag.end = closing, self._length

    def add_empty(self, source: str) -> None:
        """Add something without text: an image, a comment, an unpaired tag."""
        self._add(source)

    def add_protected(self, source: str, text: str) -> None:
        """Add an element that must not be translated, with the text that it contains.

        The text is in backticks, by which the translator knows that it is to be kept.
        """
        tag = self._add(source)
        self.add_text(_IN_SPACES.sub(r"\1`\2`\3", text) if "`" not in text else text)
        tag.protected, tag.end = True, self._length

    def finish(self) -> TaggedText:
        """The text without surrounding white space."""
        self._leave_open(1)
        raw = "".join(self._parts)
        words = [word.span() for word in re.finditer(r"\S+", raw)]
        starts = [0, *accumulate(end - start + 1 for start, end in words)]
        for tag, parent in _walk(self._root.children):
            first = bisect_right(words, tag.start, key=lambda word: word[1])  # the first word that ends later
            last = bisect_left(words, tag.end, key=lambda word: word[0]) - 1  # the last word that starts earlier
            if first <= last and tag.start < tag.end:
                tag.start = starts[first] + max(0, tag.start - words[first][0])
                tag.end = starts[last] + min(tag.end, words[last][1]) - words[last][0]
            else:
                keep_spaces = parent is None or parent.start < parent.end
                between_words = (
                    0 < first < len(words) and words[first - 1][1] == tag.start and tag.end == words[first][0]
                )
                inner = [child for child in tag.children if child.start < child.end]
                if tag.closing and between_words:
                    tag.space = self._space_markup(raw[tag.start : inner[0].start if inner else tag.end]) or " "
                elif tag.closing and not inner:
                    tag.opening += self._space_markup(raw[tag.start : tag.end])
                tag.start = tag.end = _empty_place(tag, first, words, starts, keep_spaces)
        return TaggedText(" ".join(raw[start:end] for start, end in words), self._root.children)

    def _space_markup(self, space: str) -> str:
        return space.replace("\xa0", self._no_break_space)

    def _add(self, opening: str) -> Tag:
        tag = Tag(self._length, self._length, opening)
        self._open[-1][1].children.append(tag)
        return tag

    def _leave_open(self, index: int) -> None:
        """Make the open elements from this index on unpaired tags; what is in them follows them."""
        children = self._open[index - 1][1].children
        for name, tag in self._open[index:]:
            children += tag.children
            tag.children = []
            self._names[name] -= 1
        del self._open[index:]


def _empty_place(tag: Tag, following: int, words: list[tuple[int, int]], starts: list[int], keep_spaces: bool) -> int:
    """The place in the text of a tag without text; `following` is the index of the first word that ends after it.

    White space on both sides of the tag is one space in the text, so the tag gets a space of its own.
    """
    if following < len(words) and words[following][0] < tag.start:  # inside a word
        return starts[following] + tag.start - words[following][0]
    space_before = following > 0 and words[following - 1][1] < tag.start
    space_after = following < len(words) and tag.end < words[following][0]
    if following == len(words):
        if space_before and keep_spaces:
            tag.opening = f" {tag.opening}"
        return max(0, starts[-1] - 1)
    if (space_before or following == 0) and space_after and keep_spaces:
        tag.opening, tag.closing = (tag.opening, f"{tag.closing} ") if tag.closing else (f"{tag.opening} ", "")
    return starts[following] - (following > 0 and not space_before)


def _walk(tags: Sequence[Tag]) -> Iterator[tuple[Tag, Tag | None]]:
    """Tags and their descendants with their parents, parents first."""
    waiting: list[tuple[Tag, Tag | None]] = [(tag, None) for tag in tags]
    while waiting:
        tag, parent = waiting.pop()
        yield tag, parent
        waiting += ((child, tag) for child in tag.children)

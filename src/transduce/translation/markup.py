"""Inline tags, of documents and of lines: taken out of a text before it is translated."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Literal, NamedTuple

from transduce.deadline import check_deadline

_PAIRED = re.compile(r"<(?P<closes>/?)(?P<name>[A-Za-z][\w-]*)(?:\s[^<>]*)?(?<!/)>")
_IN_SPACES = re.compile(r"\A(\s*)(\S(?:.*\S)?)(\s*)\Z", re.DOTALL)
"""A text, and the white space around it."""


class Mark(NamedTuple):
    """Markup in a text: half of a pair of tags, or something that has none, such as an image or an unpaired tag."""

    place: int
    """The number of characters of the text before it, without markup."""
    name: str
    source: str
    """The markup itself; of a protected element, all of it."""
    kind: Literal["open", "close", "empty", "protected"] = "empty"
    length: int = 0
    """Number of characters of the text in a protected element."""


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
    return (tag for tag, _ in _walk(tags))


def protected_tags(tags: Sequence[Tag]) -> list[Tag]:
    """The protected elements among tags and their descendants, in the order of the text."""
    return sorted((tag for tag in all_tags(tags) if tag.protected), key=lambda tag: tag.start)


def paired_tags(text: str) -> list[re.Match[str]]:
    """The HTML tags of a text that are pairs, in order; of others, such as "<name>", it is not known what they are."""
    waiting, paired = list[re.Match[str]](), list[re.Match[str]]()
    names: Counter[str] = Counter()
    for tag in _PAIRED.finditer(text):
        if not tag["closes"]:
            waiting.append(tag)
            names[tag["name"]] += 1
        elif names[tag["name"]]:
            while (opening := waiting.pop())["name"] != tag["name"]:
                names[opening["name"]] -= 1
            names[tag["name"]] -= 1
            paired += [opening, tag]
    return sorted(paired, key=re.Match.start)


class TaggedTextBuilder:
    """Builds a TaggedText from text and tags, in the order of the source."""

    def __init__(self, no_break_space: str = "&nbsp;") -> None:
        self._no_break_space = no_break_space
        """How the markup language writes a no-break space."""
        self._parts: list[str] = []
        self._length = 0
        self._marks: list[Mark] = []

    def add_text(self, text: str) -> None:
        """Add text, with entities decoded."""
        self._parts.append(text)
        self._length += len(text)

    def open(self, name: str, opening: str) -> None:
        self._marks.append(Mark(self._length, name, opening, "open"))

    def close(self, name: str, closing: str) -> None:
        """End the innermost element with this name."""
        self._marks.append(Mark(self._length, name, closing, "close"))

    def add_empty(self, source: str) -> None:
        """Add something without text: an image, a comment, an unpaired tag."""
        self._marks.append(Mark(self._length, "", source))

    def add_protected(self, source: str, text: str) -> None:
        """Add an element that must not be translated, with the text that it contains.

        The text is in backticks, by which the translator knows that it is to be kept.
        """
        text = _IN_SPACES.sub(r"\1`\2`\3", text) if "`" not in text else text
        self._marks.append(Mark(self._length, "", source, "protected", len(text)))
        self.add_text(text)

    def finish(self) -> TaggedText:
        """The text without surrounding white space."""
        return tagged_text("".join(self._parts), self._marks, self._no_break_space)


def tagged_text(raw: str, marks: Iterable[Mark], no_break_space: str) -> TaggedText:
    """A text and its markup; a tag whose other half is missing has no text."""
    tags = _tree(marks)
    words = [word.span() for word in re.finditer(r"\S+", raw)]
    starts = [0, *accumulate(end - start + 1 for start, end in words)]
    for tag, parent in _walk(tags):
        first = bisect_right(words, tag.start, key=lambda word: word[1])  # the first word that ends later
        last = bisect_left(words, tag.end, key=lambda word: word[0]) - 1  # the last word that starts earlier
        if first <= last and tag.start < tag.end:
            tag.start = starts[first] + max(0, tag.start - words[first][0])
            tag.end = starts[last] + min(tag.end, words[last][1]) - words[last][0]
            continue
        keep_spaces = parent is None or parent.start < parent.end
        between_words = 0 < first < len(words) and words[first - 1][1] == tag.start and tag.end == words[first][0]
        inner = [child for child in tag.children if child.start < child.end]
        if tag.closing and between_words:
            space = raw[tag.start : inner[0].start if inner else tag.end]
            tag.space = space.replace("\xa0", no_break_space) or " "
        elif tag.closing and not inner:
            tag.opening += raw[tag.start : tag.end].replace("\xa0", no_break_space)
        tag.start = tag.end = _empty_place(tag, first, words, starts, keep_spaces)
    return TaggedText(" ".join(raw[start:end] for start, end in words), tags)


def collapsed_places(raw: str) -> list[int]:
    """The place in a TaggedText of each character of its raw text, and of the end."""
    places, length = [0], 0
    for letter, following in zip(raw, f"{raw} "[1:], strict=True):
        length += not letter.isspace() or (length > 0 and not following.isspace())
        places.append(length)
    return places


def _tree(marks: Iterable[Mark]) -> list[Tag]:
    """The elements of marks; those that are not closed are unpaired tags, and what is in them follows them."""
    root = Tag(0, 0, "")
    opened = [("", root)]  # names and tags of the elements that are not closed, from the outermost inwards
    names: Counter[str] = Counter()

    def leave_open(index: int) -> None:
        children = opened[index - 1][1].children
        for name, tag in opened[index:]:
            children += tag.children
            tag.children = []
            names[name] -= 1
        del opened[index:]

    for mark in _join_empty(marks):
        check_deadline()
        if mark.kind == "close" and names[mark.name]:
            leave_open(1 + next(index for index in reversed(range(len(opened))) if opened[index][0] == mark.name))
            _, tag = opened.pop()
            names[mark.name] -= 1
            tag.closing, tag.end = mark.source, mark.place
            continue
        tag = Tag(mark.place, mark.place + mark.length, mark.source, protected=mark.kind == "protected")
        opened[-1][1].children.append(tag)
        if mark.kind == "open":
            opened.append((mark.name, tag))
            names[mark.name] += 1
    leave_open(1)
    return root.children


def _join_empty(marks: Iterable[Mark]) -> Iterator[Mark]:
    """Marks of which those without text that nothing separates are a single one, so that nothing comes between them."""
    for place, group in groupby(marks, lambda mark: mark.place if mark.kind == "empty" else None):
        if place is None:
            yield from group
        else:
            yield Mark(place, "", "".join(mark.source for mark in group))


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
        check_deadline()
        tag, parent = waiting.pop()
        yield tag, parent
        waiting += ((child, tag) for child in tag.children)

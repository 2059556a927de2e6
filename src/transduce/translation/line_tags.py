"""Pairs of HTML tags and of Markdown's asterisks in a line of text: taken out, and put back by alignment."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transduce.translation.html_text import BLOCKS
from transduce.translation.inline_tags import TaggedText, TaggedTextBuilder
from transduce.translation.paired_tags import paired_tags
from transduce.translation.sentences import Sentence

_EMPHASIS = re.compile(
    r"`[^`\n]+`|<[^<>\n]+>|"
    r"(?<![\w/\\*~])(?P<mark>\*{1,3}|~~)(?=[^\s*~])(?P<text>[^*~<>\n]{1,400}+)(?<=\S)(?P=mark)(?![\w*~])"
)
"""Code, a tag, or emphasized text: "**very**"."""


class LineTag(NamedTuple):
    """A tag of a pair."""

    place: int
    """The number of characters of the text before it, without tags."""
    name: str
    source: str
    closes: bool


def take_tags(line: str) -> tuple[str, list[LineTag]]:
    """The line without its pairs of tags and asterisks, and these; a line that has nothing else keeps them.

    A tag that separates blocks, as in "<li>one</li><li>two</li>", leaves a space between the words around it.
    """
    pieces, tags, length, end = list[str](), list[LineTag](), 0, 0
    separates = False
    for found in [*_pairs(line), None]:
        piece = line[end : found.place if found else len(line)]
        if piece and separates and length and not (pieces[-1][-1].isspace() or piece[0].isspace()):
            piece = f" {piece}"
        if piece:
            pieces.append(piece)
            length, separates = length + len(piece), False
        if found:
            tags.append(found._replace(place=length))
            end = found.place + len(found.source)
            separates = separates or found.name.lower() in BLOCKS
    text = "".join(pieces)
    return (text, tags) if any(map(str.isalnum, text)) else (line, [])


def _pairs(line: str) -> list[LineTag]:
    """The tags and asterisks of a line, with their places in it."""
    pairs = [LineTag(tag.start(), tag["name"], tag[0], bool(tag["closes"])) for tag in paired_tags(line)]
    for found in _EMPHASIS.finditer(line):
        if mark := found["mark"]:
            pairs += [LineTag(found.start(), mark, mark, False), LineTag(found.end("text"), mark, mark, True)]
    return sorted(pairs)


def tags_by_sentence(text: str, tags: Sequence[LineTag], sentences: Sequence[Sentence]) -> Iterator[list[LineTag]]:
    """The tags in or beside each sentence of a text; the place of each is then relative to the sentence."""
    start = len(text) - len(text.lstrip()) if sentences and sentences[0].text != text else 0
    waiting = list(reversed(tags))
    for index, sentence in enumerate(sentences):
        end = start + len(sentence.text)
        is_last, own = index == len(sentences) - 1, list[LineTag]()
        # A tag between two sentences belongs to the second one, unless it closes an element of the first.
        while waiting and (is_last or waiting[-1].place < end + waiting[-1].closes):
            tag = waiting.pop()
            own.append(tag._replace(place=min(max(tag.place - start, 0), len(sentence.text))))
        yield own
        start = end + len(sentence.separator)


def with_tags(text: str, tags: Sequence[LineTag]) -> TaggedText:
    """A sentence with its tags; one whose other half is in another sentence has no text."""
    builder, end = TaggedTextBuilder("\xa0"), 0
    for tag in tags:
        builder.add_text(text[end : tag.place])
        if tag.closes:
            builder.close(tag.name, tag.source)
        else:
            builder.open(tag.name, tag.source)
        end = tag.place
    builder.add_text(text[end:])
    return builder.finish()

"""Pairs of HTML tags in a line of text: taken out before it is translated, and put back by alignment."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transduce.text.html_text import BLOCKS
from transduce.text.inline_tags import TaggedText, TaggedTextBuilder
from transduce.text.paired_tags import paired_tags
from transduce.text.sentences import Sentence


class LineTag(NamedTuple):
    """A tag of a pair."""

    place: int
    """The number of characters of the text before it, without tags."""
    name: str
    source: str
    closes: bool


def take_tags(line: str) -> tuple[str, list[LineTag]]:
    """The line without its pairs of tags, and these; a line that has nothing else keeps them.

    A tag that separates blocks, as in "<li>one</li><li>two</li>", leaves a space between the words around it.
    """
    pieces, tags, length, end = list[str](), list[LineTag](), 0, 0
    separates = False
    for tag in [*paired_tags(line), None]:
        piece = line[end : tag.start() if tag else len(line)]
        if piece and separates and length and not (pieces[-1][-1].isspace() or piece[0].isspace()):
            piece = f" {piece}"
        if piece:
            pieces.append(piece)
            length, separates = length + len(piece), False
        if tag:
            tags.append(LineTag(length, tag["name"], tag[0], bool(tag["closes"])))
            end, separates = tag.end(), separates or tag["name"].lower() in BLOCKS
    text = "".join(pieces)
    return (text, tags) if any(map(str.isalnum, text)) else (line, [])


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

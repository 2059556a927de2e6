"""Pairs of HTML tags and of Markdown's asterisks in a line: taken out, and put back by alignment."""

import re
from collections.abc import Sequence
from dataclasses import replace

from transduce.translation.markup import Mark, collapsed_places, paired_tags
from transduce.translation.projection import project
from transduce.translation.text import Context, Edit, Found, Segment, Stage, Text
from transduce.translation.token_ranges import align_characters

_BLOCK_NAMES = """
address article aside blockquote body br button caption center col colgroup dd details dialog dir div dl dt fieldset
figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe label legend li link
main menu meta nav noscript object ol optgroup option p pre section select summary table tbody td template textarea
tfoot th thead title tr ul video
"""
BLOCKS = frozenset(_BLOCK_NAMES.split())
"""HTML elements that end a text; all others are part of a sentence."""
_MARKS = frozenset("<*~")
_EMPHASIS = re.compile(
    r"`[^`\n]+`|<[^<>\n]+>|"
    r"(?<![\w/\\*~])(?P<mark>\*{1,3}|~~)(?=[^\s*~])(?P<text>[^*~<>\n]{1,400}+)(?<=\S)(?P=mark)(?![\w*~])"
)
"""Code, a tag, or emphasized text: "**very**"."""


class Tags(Stage):
    """Takes pairs of tags and asterisks out of a line, if outputs can be aligned to put them back.

    An output whose beginning is given keeps them in the text.
    """

    name = "tags"

    def __init__(self, aligns: bool) -> None:
        self._aligns = aligns

    def apply(self, text: Text, context: Context) -> Text:
        """The line without its pairs of tags and asterisks; a line that has nothing else keeps them.

        A tag that separates blocks, as in "<li>one</li><li>two</li>", leaves a space between the words around it.
        """
        is_marked = not _MARKS.isdisjoint(text.characters)
        if not (is_marked and self._aligns and context.protection) or context.has_prefix:
            return text
        line, edits, marks = text.characters, list[Edit](), list[Mark]()
        length, end, last, separates = 0, 0, "", False  # of the text without tags: its length and last character
        for found in [*_pairs(line), Mark(len(line), "", "")]:
            if piece := line[end : found.place]:
                if separates and last and not (last.isspace() or piece[0].isspace()):
                    edits[-1] = (*edits[-1][:2], " ")
                    length += 1
                length, last, separates = length + len(piece), piece[-1], False
            if found.source:
                marks.append(found._replace(place=length))
                end = found.place + len(found.source)
                edits.append((found.place, end, ""))
                separates = separates or found.name.lower() in BLOCKS
        without = text.edited(edits)
        return replace(without, marks=tuple(marks)) if any(map(str.isalnum, without.characters)) else text

    @staticmethod
    def restore(output: Found, segment: Segment) -> Found:
        """The output with the tags of the segment around the words that translate those inside of them."""
        tagged = segment.tagged
        if tagged is None or output.alignment is None:
            return output
        if output.text == tagged.text:
            aligned = [((index, index + 1), (index, index + 1)) for index in range(len(output.text))]
        else:
            places = collapsed_places(segment.text)
            source = [
                (places[segment.original.place(start)], places[segment.original.place(end)])
                for start, end in output.source_spans
            ]
            aligned = align_characters(source, output.tokens, output.text, output.alignment)
        return replace(output, text=project(tagged, output.text, aligned, str))


def _pairs(line: str) -> list[Mark]:
    """The tags and asterisks of a line, with their places in it."""
    pairs = [Mark(tag.start(), tag["name"], tag[0], "close" if tag["closes"] else "open") for tag in paired_tags(line)]
    for found in _EMPHASIS.finditer(line):
        if mark := found["mark"]:
            pairs += [Mark(found.start(), mark, mark, "open"), Mark(found.end("text"), mark, mark, "close")]
    return sorted(pairs, key=lambda mark: mark.place)


def marks_by_range(marks: Sequence[Mark], ranges: Sequence[tuple[int, int]]) -> list[list[Mark]]:
    """The tags in or beside each sentence, given by its range; the place of each is then relative to the sentence."""
    waiting = list(reversed(marks))
    results = []
    for index, (start, end) in enumerate(ranges):
        is_last, inside = index == len(ranges) - 1, list[Mark]()
        # A tag between two sentences belongs to the second one, unless it closes an element of the first.
        while waiting and (is_last or waiting[-1].place < end + (waiting[-1].kind == "close")):
            tag = waiting.pop()
            inside.append(tag._replace(place=min(max(tag.place - start, 0), end - start)))
        results.append(inside)
    return results

"""Projection of inline tags onto a translation by word alignment."""

import html
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from transduce.translation.boundaries import boundaries
from transduce.translation.markup import Tag, TaggedText, all_tags, protected_tags
from transduce.translation.token_ranges import Span

_DEEPEST = 16
"""Depth below which elements are not aligned, which bounds the time for hostile HTML."""
_NEAR = 5
"""Number of source words before an element that are searched for one that is aligned, if the element is not."""


def project(
    tagged: TaggedText,
    translation: str,
    alignment: Sequence[tuple[Span, Span]],
    escape: Callable[[str], str] = html.escape,
) -> str:
    """The HTML of a translation: its text, escaped, with every tag of the source exactly once and properly nested.

    `escape` writes text in another markup language.

    `alignment` has pairs of ranges of characters, of the source text and of the translation. An element surrounds the
    words that its source words are aligned with, without outliers, so that they are contiguous. If nothing is aligned
    with it, it is placed at the proportional place. Something without text follows the same word as in the source. If
    it is the space between two words there, it is the space after that word.
    """
    if not tagged.tags:
        return escape(translation)
    return _Projection(tagged, translation, alignment).html(escape)


_LONGEST_LITERAL = 200
"""Words of equal text that are all aligned with each other; of more, each is aligned with its equal."""


@dataclass
class _Placed:
    """A tag with its place in the translation."""

    tag: Tag
    source: range
    """Indices of its source words."""
    target: range
    """Indices of its words in the translation."""
    start: int
    end: int
    """Its range of characters in the translation."""
    depth: int = 0
    spaces: tuple[str, str] = ("", "")
    """White space before and after it."""
    children: list["_Placed"] = field(default_factory=list)


class _Siblings:
    """The words of an element's translation that its children have taken."""

    def __init__(self, target: range) -> None:
        self._first = target.start
        self._taken = bytearray(len(target))
        self._ends = [0] * len(target)

    def take(self, words: range) -> None:
        for word in words:
            self._taken[word - self._first] = 1
            self._ends[word - self._first] = words.stop

    def is_free(self, words: range) -> bool:
        return self._taken.find(1, words.start - self._first, words.stop - self._first) < 0

    def nearest_free(self, word: int) -> int | None:
        index = self._taken.find(0, word - self._first)
        index = index if index >= 0 else self._taken.rfind(0, 0, word - self._first)
        return index + self._first if index >= 0 else None

    def outside(self, boundary: int) -> int:
        """The boundary before this word, or the end of the sibling that it would be inside of."""
        index = boundary - self._first
        inside = 0 < index < len(self._ends) and self._ends[index] and self._ends[index] == self._ends[index - 1]
        return self._ends[index] if inside else boundary


class _Projection:
    def __init__(self, tagged: TaggedText, translation: str, alignment: Sequence[tuple[Span, Span]]) -> None:
        self._tagged, self._translation = tagged, translation
        self._words = WordAlignment(tagged, translation, alignment)

    def html(self, escape: Callable[[str], str]) -> str:
        """Place all tags, then write text and tags in order."""
        whole = Tag(0, len(self._tagged.text), "", children=self._tagged.tags)
        words, translated = range(len(self._words.source)), range(len(self._words.target))
        root = _Placed(whole, words, translated, 0, len(self._translation))
        waiting = [root]
        while waiting:
            parent = waiting.pop()
            self._place_children(parent)
            waiting += parent.children
        output: list[str] = []
        todo: list[_Placed | str] = [root]
        while todo:
            item = todo.pop()
            if isinstance(item, str):
                output.append(item)
            else:
                todo += reversed(self._content(item, escape))
        return "".join(output)

    def _content(self, placed: _Placed, escape: Callable[[str], str]) -> list["_Placed | str"]:
        before, after = placed.spaces
        if placed.tag.protected:
            return [before + placed.tag.opening + after]
        items: list[_Placed | str] = [before + placed.tag.opening]
        position = placed.start
        for child in sorted(placed.children, key=lambda child: (child.start, child.end)):
            items += [self._text(placed, position, child.start, escape), child]
            position = child.end
        return [*items, self._text(placed, position, placed.end, escape), placed.tag.closing]

    def _text(self, placed: _Placed, start: int, end: int, escape: Callable[[str], str]) -> str:
        """Markup of text that is in an element and in none of its children."""
        return placed.tag.space if placed.tag.space and start < end else escape(self._translation[start:end])

    def _place_children(self, parent: _Placed) -> None:
        tags = parent.tag.children
        if not tags:
            return
        if not parent.target or parent.depth > _DEEPEST:
            parent.children = [
                _Placed(tag, range(0), range(0), parent.start if tag.space else parent.end, parent.end) for tag in tags
            ]
            return
        if len(tags) == 1 and not tags[0].protected and self._covers(tags[0], parent):
            source = overlapping(self._words.source, (tags[0].start, tags[0].end))
            parent.children = [self._placed(tags[0], source, self._trim(tags[0], parent, parent.target), parent, 0)]
            return
        siblings = _Siblings(parent.target)
        sources = {id(tag): overlapping(self._words.source, (tag.start, tag.end)) for tag in tags}
        placed: dict[int, _Placed] = {}
        for tag in sorted((tag for tag in tags if sources[id(tag)]), key=lambda tag: not tag.protected):
            source = sources[id(tag)]
            words = self._range(tag, source, parent, siblings)
            siblings.take(words)
            placed[id(tag)] = self._placed(tag, source, words, parent, 1)
        taken: set[int] = set()
        for tag in tags:
            with_words = placed.get(id(tag))
            if with_words is None or not with_words.target:
                boundary = siblings.outside(self._boundary(tag, parent))
                place = self._boundary_place(tag, boundary, parent)
                end = place
                if tag.space and place in taken:
                    place = end = place + 1
                elif tag.space and place < parent.end and self._translation[place].isspace():
                    taken.add(place)
                    end = place + 1
                placed[id(tag)] = _Placed(tag, sources[id(tag)], range(0), place, end)
                if tag.protected and tag.start < tag.end:
                    placed[id(tag)].spaces = self._spaces(place)
                elif self._lacks_space(tag, place, parent):
                    placed[id(tag)].spaces = " ", ""
        parent.children = [placed[id(tag)] for tag in tags]

    def _placed(self, tag: Tag, source: range, words: range, parent: _Placed, deeper: int) -> _Placed:
        start, end = (self._words.target[words.start][0], self._words.target[words.stop - 1][1]) if words else (0, 0)
        return _Placed(tag, source, words, start, end, parent.depth + deeper)

    def _spaces(self, place: int) -> tuple[str, str]:
        """The white space that separates an inserted word from the words around it."""
        before, after = self._translation[place - 1 : place], self._translation[place : place + 1]
        return " " if before and not before.isspace() else "", " " if after.isalnum() else ""

    def _follows_space(self, tag: Tag) -> bool:
        """Whether there is white space before the tag in the source."""
        return self._tagged.text[tag.start - 1 : tag.start].isspace()

    def _lacks_space(self, tag: Tag, place: int, parent: _Placed) -> bool:
        """Whether something without text comes to be next to a word, but was separated from it in the source."""
        is_empty = tag.start == tag.end and parent.start < place
        return is_empty and self._follows_space(tag) and not self._translation[place - 1].isspace()

    def _covers(self, tag: Tag, parent: _Placed) -> bool:
        """Whether the element contains all words of its parent."""
        source = overlapping(self._words.source, (tag.start, tag.end))
        count = self._count_words(source)
        return count > 0 and count == self._count_words(parent.source)

    def _count_words(self, source: range) -> int:
        return self._words.source_word_counts[source.stop] - self._words.source_word_counts[source.start]

    def _range(self, tag: Tag, source: range, parent: _Placed, siblings: _Siblings) -> range:
        """The words of the translation that an element surrounds; empty if there are none left."""
        literal = self._words.literal.get(id(tag))
        if literal and literal.start in parent.target and literal[-1] in parent.target and siblings.is_free(literal):
            return literal
        if self._covers(tag, parent) and siblings.is_free(parent.target) and not tag.protected:
            return self._trim(tag, parent, parent.target)
        words = self._aligned(source, parent, siblings)
        if words or tag.protected:
            return self._trim(tag, parent, words) if words else words
        start = self._boundary(tag, parent)
        count = max(1, round(len(source) / len(parent.source) * len(parent.target)))
        words = range(min(start, parent.target.stop - 1), min(start + count, parent.target.stop))
        if siblings.is_free(words):
            return self._trim(tag, parent, words)
        free = siblings.nearest_free(words.start)
        return range(0) if free is None else range(free, free + 1)

    def _aligned(self, source: range, parent: _Placed, siblings: _Siblings) -> range:
        """The contiguous words with the largest sum of gains: a word that is aligned gains, one between them costs."""
        inside: defaultdict[int, float] = defaultdict(float)
        for index in source:
            for word, weight in self._words.links[index].items():
                if word in parent.target and siblings.is_free(range(word, word + 1)):
                    inside[word] += weight
        if not inside:
            return range(0)
        gains = {}
        for word, weight in inside.items():
            share = weight / self._words.totals[word]
            gains[word] = (share - OUTSIDE * (1 - share)) * (1 if self._words.is_word[word] else MINOR)
        best_word = max(sorted(gains), key=lambda word: (gains[word], inside[word]))
        best, most = range(best_word, best_word + 1), gains[best_word]
        first = previous = -1
        total = 0.0
        for word in sorted(gains):
            carried = total - (self._words.costs[word] - self._words.costs[previous + 1]) if previous >= 0 else 0.0
            if carried <= 0 or not siblings.is_free(range(previous + 1, word)):
                first, carried = word, 0.0
            total, previous = carried + gains[word], word
            if total > most:
                best, most = range(first, word + 1), total
        return best

    def _trim(self, tag: Tag, parent: _Placed, words: range) -> range:
        """Words without the punctuation marks around them, if the element has none there in the source."""
        first, last = words.start, words.stop
        if tag.start > parent.tag.start and self._tagged.text[tag.start].isalnum():
            while first < last - 1 and not self._words.is_word[first]:
                first += 1
        if tag.end < parent.tag.end and self._tagged.text[tag.end - 1].isalnum():
            while first < last - 1 and not self._words.is_word[last - 1]:
                last -= 1
        return range(first, last)

    def _boundary(self, tag: Tag, parent: _Placed) -> int:
        """The boundary, in words of the translation, after the word that precedes the tag in the source."""
        target = parent.target
        if tag.start <= parent.tag.start:
            return target.start
        if tag.start >= parent.tag.end:
            return target.stop
        index = bisect_right(self._words.source, tag.start, key=lambda word: word[1]) - 1
        before = index
        while before >= parent.source.start and not self._words.source_is_word[before]:
            before -= 1
        for near in range(before, max(parent.source.start, before - _NEAR) - 1, -1):
            links = {word: weight for word, weight in self._words.links[near].items() if word in target}
            if links:
                boundary = max(links, key=lambda word: (links[word], word)) + 1  # after the last of equal ones
                break
        else:
            share = (index + 1 - parent.source.start) / max(1, len(parent.source))
            return min(target.start + round(share * len(target)), target.stop)
        while before < index and boundary < target.stop and not self._words.is_word[boundary]:
            boundary += 1  # a comma between the word and the tag comes first
        return boundary

    def _boundary_place(self, tag: Tag, boundary: int, parent: _Placed) -> int:
        """The place of a boundary between words: before or after the space there, as in the source."""
        if boundary <= parent.target.start:
            return parent.start
        if boundary >= parent.target.stop:
            return parent.end
        return self._words.target[boundary][0] if self._follows_space(tag) else self._words.target[boundary - 1][1]


_OCCURRENCES = 20
"""Number of occurrences of a protected text in a translation that are considered."""
_LEAST_IN_A_WORD = 3
"""Number of characters that a protected text must have to be found inside a word of the translation."""
OUTSIDE = 0.5
"""Cost of a word between two words of an element that is not aligned with it; the gain of a word that is, is 1."""
MINOR = 0.1
"""Weight of punctuation marks relative to words."""


class WordAlignment:
    """The words of a text and of its translation, and the weights of their links."""

    def __init__(self, tagged: TaggedText, translation: str, alignment: Sequence[tuple[Span, Span]]) -> None:
        literal, copied = _find_protected(tagged, translation), _find_copied(tagged, translation)
        edges = {edge for tag in all_tags(tagged.tags) for edge in (tag.start, tag.end)}
        self.source = _words(tagged.text, edges)
        """The range of characters of each word of the text."""
        self.target = _words(translation, {edge for _, span in [*literal, *copied] for edge in span})
        """The same of the translation."""
        self.links: list[defaultdict[int, float]] = [defaultdict(float) for _ in self.source]
        """For each source word, the words of the translation that are aligned with it, with weights."""
        self.totals = [0.0] * len(self.target)
        """For each word of the translation, the sum of its weights."""
        for source, target in alignment:
            source_words = overlapping(self.source, source)
            for word in overlapping(self.target, target):
                overlap = min(target[1], self.target[word][1]) - max(target[0], self.target[word][0])
                for index in source_words:
                    self.links[index][word] += overlap / len(source_words)
                    self.totals[word] += overlap / len(source_words)
        self.is_word = [any(map(str.isalnum, translation[start:end])) for start, end in self.target]
        self.source_is_word = [any(map(str.isalnum, tagged.text[start:end])) for start, end in self.source]
        self.source_word_counts = [0, *accumulate(self.source_is_word)]
        """Number of words, without punctuation marks, before each index."""
        self.literal: dict[int, range] = {}
        """Words of the translation that are the text of a protected element, by the element's id."""
        self._align_literally([*(((tag.start, tag.end), span) for tag, span in literal), *copied])
        for tag, span in literal:
            self.literal[id(tag)] = overlapping(self.target, span)
        costs = (
            OUTSIDE if is_word and total else OUTSIDE * MINOR
            for is_word, total in zip(self.is_word, self.totals, strict=True)
        )
        self.costs = [0.0, *accumulate(costs)]
        """Sum of the costs of the words of the translation before each index."""

    def _align_literally(self, equal: list[tuple[Span, Span]]) -> None:
        """Align ranges of the text with the words of the translation that are equal to them, and with no others."""
        sources: list[list[int]] = [[] for _ in self.target]
        for index, links in enumerate(self.links):
            for word in links:
                sources[word].append(index)
        for source, span in equal:
            source_words = overlapping(self.source, source)
            for number, word in enumerate(overlapping(self.target, span)):
                for index in sources[word]:
                    self.links[index].pop(word, None)
                self.totals[word] = 1.0
                linked = source_words
                if len(linked) > _LONGEST_LITERAL:
                    linked = linked[min(number, len(linked) - 1) :][:1]
                for index in linked:
                    self.links[index][word] = 1.0 / len(linked)


def _find_copied(tagged: TaggedText, translation: str) -> list[tuple[Span, Span]]:
    """The pieces of words that a tag begins or ends in and that are copied, such as "H2O", where the 2 is lowered."""
    edges = sorted({edge for tag in all_tags(tagged.tags) if not tag.protected for edge in (tag.start, tag.end)})
    if not edges:
        return []
    places: defaultdict[tuple[str, int], deque[int]] = defaultdict(deque)
    for start, end in _words(translation):
        places[translation[start:end].lower(), end - start].append(start)
    pieces = []
    for start, end in _words(tagged.text):
        inside = edges[bisect_right(edges, start) : bisect_left(edges, end)]
        waiting = places[tagged.text[start:end].lower(), end - start]
        if waiting:
            shift = waiting.popleft() - start
            ends = [start, *inside, end] if inside else []
            pieces += [((edge, next_edge), (edge + shift, next_edge + shift)) for edge, next_edge in pairwise(ends)]
    return pieces


def _find_protected(tagged: TaggedText, translation: str) -> list[tuple[Tag, Span]]:
    """The places in the translation that are equal to protected elements, each near the proportional place."""
    edges = {edge for word in _words(translation) for edge in word}
    used = bytearray(len(translation))
    last: dict[str, int] = {}  # the end of the last occurrence of each text that is used
    found = []
    for tag in protected_tags(tagged.tags):
        text = tagged.text[tag.start : tag.end]
        if text not in translation:
            text = text.strip("`")  # a translator that protects nothing may leave them out
        expected = tag.start / max(1, len(tagged.text)) * len(translation)
        places: list[tuple[bool, float, int]] = []
        place = translation.find(text, last.get(text, 0)) if text else -1
        for _ in range(_OCCURRENCES):
            if place < 0:
                break
            in_a_word = not edges.issuperset((place, place + len(text)))
            if used.find(1, place, place + len(text)) < 0 and (not in_a_word or len(text) >= _LEAST_IN_A_WORD):
                places.append((in_a_word, abs(place - expected), place))
            place = translation.find(text, place + len(text))
        if places:
            start = min(places)[2]
            last[text] = start + len(text)
            used[start : last[text]] = b"\x01" * len(text)
            found.append((tag, (start, last[text])))
    return found


def _words(text: str, edges: Collection[int] = ()) -> list[Span]:
    """The ranges of the words and punctuation marks of a text; at an edge, a word is split in two."""
    ends = boundaries("word", text) if text else []
    if edges:
        ends = sorted({*ends, *edges} - {0})
    return [(start, end) for start, end in zip([0, *ends], ends, strict=False) if not text[start:end].isspace()]


def overlapping(words: list[Span], span: Span) -> range:
    """Indices of the words that have characters in a range."""
    if span[0] >= span[1]:
        return range(0)
    first = bisect_right(words, span[0], key=lambda word: word[1])
    return range(first, max(first, bisect_left(words, span[1], key=lambda word: word[0])))

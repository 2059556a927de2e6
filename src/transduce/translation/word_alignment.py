"""Alignment of the words of a text with inline tags and of its translation."""

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise

from transduce.tokenizers.token_ranges import Span
from transduce.translation.icu import boundaries
from transduce.translation.inline_tags import Tag, TaggedText, all_tags, protected_tags

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
        for own, span in equal:
            source_words = overlapping(self.source, own)
            for word in overlapping(self.target, span):
                for index in sources[word]:
                    self.links[index].pop(word, None)
                self.totals[word] = 1.0
                for index in source_words:
                    self.links[index][word] = 1.0 / len(source_words)


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
            pieces += [((one, other), (one + shift, other + shift)) for one, other in pairwise(ends)]
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

"""Splits a line into the segments that are translated, and joins their translations.

A segment is a sentence, or what the layout of the line separates: columns, and the marks of lists, headings and
quotations. One that is too long for the model is split further.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from transduce.translation.boundaries import boundaries
from transduce.translation.rules import Abbreviations, common
from transduce.translation.sentences import LINE_BREAKS, Sentence, join_sentences, split_sentences
from transduce.translation.stages.protect import Protect
from transduce.translation.stages.tags import marks_by_range
from transduce.translation.text import LIST_NUMBER, Context, Segment, Text

_BREAK = re.compile("[\t\n\r\x85\u2028\u2029]")
_ESCAPES = r"(?<=\S)(?:\\[nrt])+(?=[^a-z\s])"  # in messages of programs: "First line.\\nSecond line."
_SEPARATOR = re.compile(rf"\t\s*|{LINE_BREAKS}|{_ESCAPES}|(?:\A|(?<=\s))([|·•])(\s+|\Z)")
_ONE = common()["layout"]["mark"]
_MARK = re.compile(rf"({_ONE}(?:\s+{_ONE})*)(\s+)(?=\S)")
_NUMBERED = re.compile(rf"({LIST_NUMBER.pattern})(\s+)(?=[\"'(«„“‘*]*([^\W\d_]+))")

Cut = tuple[int, int]
"""End of a part and start of the next one, with only white space between them."""

# After a comma, semicolon, colon, dash or closing bracket; marks of scripts without spaces need no space after them.
_CLAUSE_END = re.compile(r"(?<=[,;:…–—)\]»”])\s+|(?<=[，、；：،؛])\s*+(?![\s，、；：。！？…」』”’）》,;:.!?)\]])")
_SPACE = re.compile(r"\s+")
_NOT_FIRST = frozenset(",;:.!?…%)]}»”’\"'，、；：。！？」』）》〉】،؛؟।ー々っッゃゅょャュョ")
_NOT_LAST = frozenset("([{«„“‘\"'#$€£@「『（《〈【")
_LONGEST_CLUSTER = 32
"""Number of characters above which a grapheme cluster may be split: no real one is as long."""


class Split:
    """Splits a line into sentences; unlike other stages, it makes several texts of one."""

    name = "split"

    def __init__(self, protect: Protect, by_sentence: bool) -> None:
        self._protect, self.by_sentence = protect, by_sentence

    def apply(self, text: Text, context: Context) -> list[Text]:
        """The segments of a line: its sentences, or the line as a whole; none if it is empty."""
        if not text.characters.strip():
            return []
        if not self.by_sentence:
            return self.whole(text, context)
        return _cut(text, self._sentences(text.characters, context), context)

    def whole(self, text: Text, context: Context) -> list[Text]:
        return _cut(text, [Sentence(text.characters, "")], context)

    def pieces(self, text: Text, fits: Callable[[str], bool], context: Context) -> list[Text]:
        return _cut(text, split_long(text.characters, fits, context.source), context)

    def restore(self, outputs: Sequence[str], segments: Sequence[Segment]) -> str:
        """The outputs of a line's segments as one text, with the white space around the line."""
        separators = [segment.separator for segment in segments]
        joined = join_sentences(outputs, separators, segments[0].target)
        return segments[0].original.indentation + joined + separators[-1]

    def _sentences(self, text: str, context: Context) -> list[Sentence]:
        """The sentences of a text; those that share a protected span or a term, such as "Yahoo! Mail", are one."""
        sentences = list(split_layout(split_sentences(text, context.source), context.source))
        if len(sentences) == 1 or not (context.protection or context.glossary):
            return sentences
        text = text.strip()
        held = self._protect.spans(text, context)
        if context.glossary:
            held = sorted([*held, *(span for span, _ in context.glossary.matches(text, held))])
        joined, end, waiting = [sentences[0]], len(sentences[0].text), deque(held)
        for sentence in sentences[1:]:
            start = end + len(joined[-1].separator)
            while waiting and waiting[0].end <= start:
                waiting.popleft()
            end = start + len(sentence.text)
            if waiting and waiting[0].start < start:
                joined[-1] = Sentence("".join([*joined[-1], sentence.text]), sentence.separator)
            else:
                joined.append(sentence)
        return joined


def _cut(text: Text, sentences: Sequence[Sentence], context: Context) -> list[Text]:
    """The sentences of a text with their tags; the first and the last have the white space around the text."""
    line = text.characters
    ranges, start = list[tuple[int, int]](), 0 if sentences[0].text == line else len(line) - len(line.lstrip())
    for sentence in sentences:
        ranges.append((start, start + len(sentence.text)))
        start = ranges[-1][1] + len(sentence.separator)
    marks = marks_by_range(text.marks, ranges)
    cut = [
        text.cut(*place, sentence.separator, inside)
        for place, sentence, inside in zip(ranges, sentences, marks, strict=True)
    ]
    if text.indentation and not context.has_prefix:
        cut[0] = replace(cut[0], indentation=text.indentation)
    if text.separator:
        cut[-1] = replace(cut[-1], separator=text.separator)
    return cut


def split_layout(sentences: Iterable[Sentence], language: str | None = None) -> Iterator[Sentence]:
    r"""Split sentences at tabs, at <br>, at escapes (\n) and at marks between texts, such as " | " in a list of links.

    The marks that lines begin with, such as "-", "#" and "1.", are separated from their text. In a language in which
    "1." may mean "first", it is a mark before a capital letter, except in "1. Mai" and the like.
    """
    rules = Abbreviations.of(language)
    at_start = True
    for sentence in sentences:
        for column in _columns(sentence):
            mark = _MARK.match(column.text) if at_start else None
            if mark:
                yield Sentence(mark[1], mark[2])
                column = column._replace(text=column.text[mark.end() :])
            number = _NUMBERED.match(column.text) if at_start else None
            if number and not (number[1].endswith(".") and rules.is_ordinal_before(number[3])):
                yield Sentence(number[1], number[2])
                column = column._replace(text=column.text[number.end() :])
            yield column
            at_start = bool(_BREAK.search(column.separator))


def _columns(sentence: Sentence) -> Iterator[Sentence]:
    text, start, open_brackets, counted = sentence.text, 0, 0, 0
    for found in _SEPARATOR.finditer(text):
        open_brackets += _opened(text[counted : found.start()])
        counted = found.end()
        if found[1] and open_brackets > 0:  # as in P(A | B)
            continue
        column = text[start : found.start()].rstrip()
        space = text[start + len(column) : found.start()]
        start = found.end()
        if not found[1]:
            yield Sentence(column, space + found[0])
            continue
        if column:
            yield Sentence(column, space)
        if start == len(text):
            yield Sentence(found[1], sentence.separator)
            return
        yield Sentence(found[1], found[2])
    yield Sentence(text[start:], sentence.separator)


def _opened(text: str) -> int:
    """The number of brackets that are opened in a text, less those that are closed."""
    return sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))


def split_long(text: str, fits: Callable[[str], bool], language: str | None = None) -> list[Sentence]:
    """Split a text into parts that fit, each as long as possible.

    The text is split at ends of sentences if possible, then after clauses, then between words (in any language:
    ICU's dictionaries contain the words of Chinese, Japanese, Thai, Lao, Khmer and Burmese), then between grapheme
    clusters. Only a single cluster may be returned although it does not fit. Joined with their separators, the parts
    are the text without surrounding white space.
    """
    text = text.strip()
    parts: list[Sentence] = []
    start = 0
    for end, after in [*_split(text, 0, fits, language), (len(text), len(text))] if text else []:
        if parts and text[start:end].isspace():
            parts[-1] = parts[-1]._replace(separator=parts[-1].separator + text[start:after])
        else:
            parts.append(Sentence(text[start:end], text[end:after]))
        start = after
    return parts


def _split(text: str, level: int, fits: Callable[[str], bool], language: str | None) -> Iterator[Cut]:
    """Cuts at this level of preference, and at later levels in parts that do not fit."""
    if level == len(_LEVELS) or fits(text):
        return
    cuts = [cut for cut in _LEVELS[level](text, language) if cut[0] > 0 and cut[1] < len(text)]
    if level < _CLUSTERS and cuts:
        clusters = set(boundaries("character", text))
        cuts = [cut for cut in cuts if cut[1] in clusters]
    cuts.append((len(text), len(text)))
    start = first = 0  # start of the next part, and the index of the first cut after it

    def fits_up_to(count: int) -> bool:
        return fits(text[start : cuts[first + count - 1][0]])

    while first < len(cuts):
        count = max(1, _most(len(cuts) - first, fits_up_to))
        end, after = cuts[first + count - 1]
        for inner_end, inner_after in _split(text[start:end], level + 1, fits, language):
            yield start + inner_end, start + inner_after
        if end < len(text):
            yield end, after
        start, first = after, first + count


def _sentence_cuts(text: str, language: str | None) -> list[Cut]:
    parts = split_sentences(text, language)
    start = len(text) - len(text.lstrip())
    ends = [start + end for end in accumulate(len(part.text) + len(part.separator) for part in parts)]
    return [(end - len(part.separator), end) for part, end in zip(parts, ends, strict=True)]


def _word_cuts(text: str, language: str | None) -> list[Cut]:
    ends = boundaries("word", text)
    return [(end, end) for end in ends[:-1] if text[end] not in _NOT_FIRST and text[end - 1] not in _NOT_LAST]


def _cluster_cuts(text: str, language: str | None) -> list[Cut]:
    return [(end, end) for end in boundaries("character", text)]


def _character_cuts(text: str, language: str | None) -> list[Cut]:
    return [(end, end) for end in range(1, len(text))] if len(text) > _LONGEST_CLUSTER else []


_LEVELS: tuple[Callable[[str, str | None], list[Cut]], ...] = (
    _sentence_cuts,
    lambda text, _: [match.span() for match in _CLAUSE_END.finditer(text)],
    lambda text, _: [match.span() for match in _SPACE.finditer(text)],
    _word_cuts,
    _cluster_cuts,
    _character_cuts,
)
_CLUSTERS = _LEVELS.index(_cluster_cuts)


def _most(limit: int, allowed: Callable[[int], bool]) -> int:
    """The largest allowed number up to the limit, if all smaller ones are allowed: by doubling, then bisection."""
    low, high = 0, 1
    while high <= limit and allowed(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low

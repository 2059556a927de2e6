"""Splitting of a text that is longer than a model accepts."""

import re
from collections.abc import Callable, Iterator
from itertools import accumulate

from transduce.translation.icu import boundaries
from transduce.translation.sentences import Sentence, split_sentences

Cut = tuple[int, int]
"""End of a part and start of the next one, with only white space between them."""

# After a comma, semicolon, colon, dash or closing bracket; marks of scripts without spaces need no space after them.
_CLAUSE_END = re.compile(r"(?<=[,;:…–—)\]»”])\s+|(?<=[，、；：،؛])\s*+(?![\s，、；：。！？…」』”’）》,;:.!?)\]])")
_SPACE = re.compile(r"\s+")
_NOT_FIRST = frozenset(",;:.!?…%)]}»”’\"'，、；：。！？」』）》〉】،؛؟।ー々っッゃゅょャュョ")
_NOT_LAST = frozenset("([{«„“‘\"'#$€£@「『（《〈【")
_LONGEST_CLUSTER = 32
"""Number of characters above which a grapheme cluster may be split: no real one is as long."""


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

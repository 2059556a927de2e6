"""Splitting of a text that is longer than a model accepts."""

import re
from collections.abc import Callable

# Where a text may be split, in order of preference: after a sentence, between words, anywhere.
_CUTS = (re.compile(r"(?<=[.!?…;:。！？；：])\s+"), re.compile(r"\s+"), re.compile(r"(?<=.)(?=.)", re.DOTALL))


def split_long(text: str, fits: Callable[[str], bool], level: int = 0) -> list[str]:
    """Split a text into chunks that fit: at ends of sentences if possible, then between words, then anywhere.

    White space at a split is dropped; every other character is in exactly one chunk.
    """
    if fits(text) or level == len(_CUTS):
        return [text]
    chunks: list[str] = []
    cuts = [*((match.start(), match.end()) for match in _CUTS[level].finditer(text)), (len(text), len(text))]
    start = first = 0  # start of the next chunk, and the index of the first cut after it

    def fits_up_to(count: int) -> bool:
        return fits(text[start : cuts[first + count - 1][0]])

    while first < len(cuts):
        count = max(1, _most(len(cuts) - first, fits_up_to))
        stop, following = cuts[first + count - 1]
        chunks.append(text[start:stop])
        start, first = following, first + count
    return [part for chunk in chunks for part in split_long(chunk, fits, level + 1) if part.strip()]


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

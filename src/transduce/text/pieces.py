"""A long text in pieces that a model can take."""

import re
from collections.abc import Callable

# Where a text may be cut, best first: after a sentence, between words, anywhere.
_CUTS = (re.compile(r"(?<=[.!?…;:。！？；：])\s+"), re.compile(r"\s+"), re.compile(r"(?<=.)(?=.)", re.DOTALL))


def split_long(text: str, fits: Callable[[str], bool], level: int = 0) -> list[str]:
    """Pieces that fit, cut at the ends of sentences where possible, else between words, else anywhere.

    White space at a cut is dropped; everything else of the text is in exactly one piece.
    """
    if fits(text) or level == len(_CUTS):
        return [text]
    pieces: list[str] = []
    cuts = [*((match.start(), match.end()) for match in _CUTS[level].finditer(text)), (len(text), len(text))]
    start = first = 0  # where the next piece begins, and the first cut after it

    def reaches(count: int) -> bool:
        return fits(text[start : cuts[first + count - 1][0]])

    while first < len(cuts):
        count = max(1, _most(len(cuts) - first, reaches))
        stop, following = cuts[first + count - 1]
        pieces.append(text[start:stop])
        start, first = following, first + count
    return [part for piece in pieces for part in split_long(piece, fits, level + 1) if part.strip()]


def _most(limit: int, allowed: Callable[[int], bool]) -> int:
    """The largest number up to the limit that is allowed, where all below it are: by doubling, then by halving."""
    low, high = 0, 1
    while high <= limit and allowed(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low

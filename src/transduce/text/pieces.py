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
    start = end = following = 0  # the piece being built is text[start:end], the next word begins at `following`
    boundaries = [(match.start(), match.end()) for match in _CUTS[level].finditer(text)]
    for stop, resume in [*boundaries, (len(text), len(text))]:
        if end > start and not fits(text[start:stop]):
            pieces.append(text[start:end])
            start = following
        end, following = stop, resume
    pieces.append(text[start:end])
    return [part for piece in pieces for part in split_long(piece, fits, level + 1) if part.strip()]

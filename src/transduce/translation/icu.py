"""Boundaries in text as Unicode defines them: of sentences, words and grapheme clusters.

ICU finds them, except in text for which `european_boundaries.py` is enough.
"""

import re
from bisect import bisect_left
from itertools import accumulate
from typing import Literal

from transduce.errors import DataError

# ICU counts UTF-16 code units, so characters outside the basic multilingual plane count twice. A lone surrogate cannot
# be passed to ICU.
_NOT_ONE_UNIT = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def boundaries(kind: Literal["sentence", "word", "character"], text: str, language: str = "en") -> list[int]:
    """The ends of the sentences, words or grapheme clusters of a text, including the end of the text.

    Spaces and punctuation marks count as words. Every call creates its own break iterator, because an iterator cannot
    be shared by threads.
    """
    # Imported here because its regular expressions are seldom needed.
    from transduce.translation.european_boundaries import european_boundaries, without_foreign_characters

    # In Greek, a semicolon is a question mark.
    marked = text.replace(";", "?") if kind == "sentence" and language == "el" else text
    if (ends := european_boundaries(kind, marked)) is not None:
        return ends
    try:
        from icu4py import breakers
    except ImportError:
        if (ends := european_boundaries(kind, without_foreign_characters(marked))) is not None:
            return ends
        raise DataError(
            "splitting a text in this script into sentences or words needs ICU: pip install 'transduce[icu]'"
        ) from None
    breaker = {
        "sentence": breakers.SentenceBreaker,
        "word": breakers.WordBreaker,
        "character": breakers.CharacterBreaker,
    }[kind]
    if not _NOT_ONE_UNIT.search(text):
        return [end for _, end in breaker(text, language).segments()]
    text = _SURROGATE.sub("\ufffd", text)
    ends = [end for _, end in breaker(text, language).segments()]
    units = [*accumulate(1 + (character > "\uffff") for character in text)]
    return [bisect_left(units, end) + 1 for end in ends]

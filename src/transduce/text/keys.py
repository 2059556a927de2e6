"""What of a text counts when two texts are compared: its letters, in lower case, and that there are numbers."""

import hashlib
import re
import unicodedata


class _Folding(dict[int, str | None]):
    """A table for `str.translate`, filled as characters come: digits become 0, all but letters and marks goes."""

    def __missing__(self, code: int) -> str | None:
        kind = unicodedata.category(chr(code))
        folded = "0" if kind[0] == "N" else chr(code) if kind[0] in "LM" else None
        self[code] = folded
        return folded


_FOLDING = _Folding()
_NUMBER = re.compile("0+")


def normalised(text: str) -> str:
    """The text by which near-copies are found: Unicode NFKC, lower case, no punctuation or spaces, every number 0.

    A text without letters stays as it is but for NFKC, or all numbers would be one.
    """
    text = unicodedata.normalize("NFKC", text)
    letters = _NUMBER.sub("0", text.casefold().translate(_FOLDING))
    return letters if letters.strip("0") else text.strip()


def hashed(text: str) -> int:
    """64 bits that stand for a text: two of ten million texts share them with a chance of one in 400,000."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

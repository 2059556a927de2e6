"""Keys by which texts are compared: normalised text, and 64-bit hashes."""

import hashlib
import re
import unicodedata


class _Folding(dict[int, str | None]):
    """A table for `str.translate`, filled on demand: digits become 0, letters and marks stay, all else is removed."""

    def __missing__(self, code: int) -> str | None:
        category = unicodedata.category(chr(code))
        folded = "0" if category[0] == "N" else chr(code) if category[0] in "LM" else None
        self[code] = folded
        return folded


_FOLDING = _Folding()
_NUMBER = re.compile("0+")


def normalised(text: str) -> str:
    """Normalise a text to detect near-duplicates: NFKC, lower case, no punctuation or spaces, every number is 0.

    A text without letters is only converted to NFKC, because otherwise all numbers would be equal.
    """
    text = unicodedata.normalize("NFKC", text)
    letters = _NUMBER.sub("0", text.casefold().translate(_FOLDING))
    return letters if letters.strip("0") else text.strip()


def hashed(text: str) -> int:
    """A 64-bit hash of a text; among ten million texts, the probability of a collision is one in 400,000."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

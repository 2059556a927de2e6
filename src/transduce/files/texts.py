"""Texts: checks of what a caller gives, safe output on a terminal, and keys by which texts are compared."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence, Sized
from itertools import pairwise

from transduce.errors import DataError

CLEAR_LINE = "\r\x1b[K"
"""Removes the last line of a terminal."""
_MAX_CHARACTERS = 2000
_UNSAFE = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories that a terminal executes, or that cannot be written or break a line."""
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the order in which a line is displayed."""
_NUMBER = re.compile("0+")


def require_text(text: object, where: str) -> None:
    """Raise a DataError, which names `where` it is, unless this is a text that can be written as UTF-8, without NUL."""
    if not isinstance(text, str):
        raise DataError(f"{where} is not a text, but of the type {type(text).__name__}")
    if not is_unicode(text):
        raise DataError(f"{where} is not valid Unicode: it contains a lone surrogate")
    if "\0" in text:
        raise DataError(f"{where} contains a NUL character; remove it")


def require_texts(texts: Iterable[object], name: str) -> None:
    """Raise a DataError unless these are a list of texts; `name` is that of the argument."""
    require_list(texts, name)
    if not isinstance(texts, Sized):  # what can be read only once would be read here
        raise DataError(f"{name} must be a list of texts, not of the type {type(texts).__name__}")
    for index, text in enumerate(texts):
        require_text(text, f"{name}[{index}]")


def require_list(texts: object, name: str) -> None:
    """Raise a DataError if this is no list, or one text, whose characters would be taken for texts."""
    if isinstance(texts, str):
        raise DataError(f"{name} must be a list of texts; for a single text, give a list of one")
    if not isinstance(texts, Iterable):
        raise DataError(f"{name} must be a list of texts, not of the type {type(texts).__name__}")


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: a lone surrogate, as in the JSON "\\ud83d", cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_line(text: str) -> str:
    """A message as one line: characters that a terminal would execute are escaped, and a long message is shortened."""
    if len(text) > _MAX_CHARACTERS:
        left_out = len(text) - _MAX_CHARACTERS
        text = f"{text[: _MAX_CHARACTERS // 2]} [... {left_out:,} characters ...] {text[-_MAX_CHARACTERS // 2 :]}"
    unsafe = {c for c in {*text} - {"\t"} if unicodedata.category(c) in _UNSAFE or c in _BIDIRECTIONAL}
    return "".join(c.encode("unicode_escape").decode() if c in unsafe else c for c in text)


class _Folding(dict[int, str | None]):
    """A table for `str.translate`, filled on demand: digits become 0, letters and marks stay, all else is removed."""

    def __missing__(self, code: int) -> str | None:
        category = unicodedata.category(chr(code))
        folded = "0" if category[0] == "N" else chr(code) if category[0] in "LM" else None
        self[code] = folded
        return folded


_FOLDING = _Folding()


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


def is_wrapped(lines: Sequence[str]) -> bool:
    """Whether lines end where the next word would not have had room, as in an e-mail, so that sentences continue."""
    pairs = [(line, after) for line, after in pairwise(lines) if line.strip() and after.strip()]
    width = max(map(len, lines), default=0)
    full = [line for line, after in pairs if len(line) + 1 + len(after.split()[0]) >= width - 2]
    inside = [line for line in full if line.rstrip()[-1] not in ".!?:;"]
    return 40 <= width <= 120 and len(inside) >= 3 and len(full) > 0.75 * len(pairs) and len(inside) > len(full) / 2

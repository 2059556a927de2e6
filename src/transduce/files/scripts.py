"""The script of a letter, for example Latin or Cyrillic, from its Unicode name."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

_KNOWN_FROM = 20
"""Number of tokens with several letters of a script in the vocabularies of models that can read it."""
_SAME = {"HIRAGANA": "KANA", "KATAKANA": "KANA", "IDEOGRAPHIC": "CJK"}


@cache
def script(char: str) -> str:
    """The script of a letter or mark: LATIN, CJK (Han), KANA, HANGUL, THAI ...; "" for any other character."""
    if unicodedata.category(char)[0] not in "LM":
        return ""
    name = unicodedata.name(char, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ")
    match = re.match(r"[A-Z]*", name)
    assert match
    word = match[0]
    return "" if word in ("COMBINING", "MODIFIER", "VARIATION") else _SAME.get(word, word)


def known_scripts(pieces: Iterable[str]) -> frozenset[str]:
    """Latin, and the scripts of which a vocabulary has learned words, not only a few letters."""
    counts: Counter[str] = Counter()
    for piece in pieces:
        if piece.lstrip("\u2581").isascii():  # all letters are Latin; for a vocabulary, this saves most of the time
            continue
        letters = [letter for letter in piece if letter.isalpha()]
        if len(letters) > 1:
            counts.update({script(letter) for letter in letters})
    return frozenset({"LATIN", *(name for name, count in counts.items() if count >= _KNOWN_FROM)})


def has_spaces(character: str) -> bool:
    """Whether a letter or digit belongs to a script that puts spaces between words."""
    return (
        character.isalnum()
        and not "\u0e00" <= character <= "\u109f"
        and not "\u1780" <= character <= "\u17ff"
        and (character < "\u2e80" or "\uac00" <= character <= "\ud7a3")
    )

"""The script of a letter, for example Latin or Cyrillic, from its Unicode name, and words in unknown scripts."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache

from transduce.text.protect import Span

NOT_LATIN = re.compile(r"[^\W\d_\x00-\u024f\u1e00-\u1eff]")
"""Finds a letter of another script than Latin."""
_KNOWN_FROM = 20
"""Number of tokens with several letters of a script in the vocabularies of models that can read it."""
_WORD = re.compile(r"\w[\w'’-]*")
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
        letters = [letter for letter in piece if letter.isalpha()]
        if len(letters) > 1:
            counts.update({script(letter) for letter in letters})
    return frozenset({"LATIN", *(name for name, count in counts.items() if count >= _KNOWN_FROM)})


def foreign_words(text: str, known: Collection[str]) -> list[Span]:
    """The ranges of words in scripts that are not known; those with nothing but punctuation between them are one."""
    spans: list[Span] = []
    for word in _WORD.finditer(text):
        if not any(name and name not in known for name in map(script, word[0])):
            continue
        if spans and not any(map(str.isalnum, text[spans[-1].end : word.start()])):
            spans[-1] = Span(spans[-1].start, word.end())
        else:
            spans.append(Span(*word.span()))
    return spans


def all_digits(alphabet: set[str]) -> set[str]:
    """The digits 0 to 9 of every script that has a digit in the alphabet."""
    zeros = {ord(character) - unicodedata.decimal(character) for character in alphabet if character.isdecimal()}
    return {chr(zero + value) for zero in zeros for value in range(10)}

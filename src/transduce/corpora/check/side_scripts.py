"""The scripts that each side of the corpus is written in, which reveal many texts in a wrong language."""

from collections import Counter
from collections.abc import Sequence
from unicodedata import east_asian_width

import numpy as np

from transduce.corpora.check.robust_statistics import Flags
from transduce.files.scripts import script

USUAL = 0.02
"""Minimum share of a side's letters for a script that belongs there."""
_OTHER = 4  # a script that is this many times as frequent on the other side does not belong to this one
_WRONG = 0.4  # minimum share of a wrong text's letters that do not belong there: Japanese is half kana, half Han
_MIN_LETTERS = 10  # fewer may be a name
_WIDE = 3  # letters that a Chinese, Japanese or Korean character counts as, about the length of what it stands for


class SideScripts:
    """The scripts of one side of the corpus."""

    def __init__(self, sample: Sequence[str]) -> None:
        counts = _letters("".join(sample))
        self._shares = {name: count / counts.total() for name, count in counts.items()}

    def wrong(self, texts: Sequence[str], other: "SideScripts") -> tuple[Flags, Flags]:
        """Flags texts of this side that are in scripts of the other side, and those in scripts of neither."""
        own_usual = {name for name in self._shares if self._is_usual(name, other)}
        other_usual = {name for name in other._shares if other._is_usual(name, self)}
        is_other, is_foreign = np.zeros(len(texts), np.bool_), np.zeros(len(texts), np.bool_)
        for n, text in enumerate(texts):
            if "LATIN" in own_usual and text.isascii():
                continue
            letters = _letters(text)
            wrong = letters.total() - sum(letters[name] for name in own_usual)
            if wrong >= max(_MIN_LETTERS, _WRONG * letters.total()):
                (is_other if 2 * sum(letters[name] for name in other_usual) >= wrong else is_foreign)[n] = True
        return is_other, is_foreign

    def _is_usual(self, name: str, other: "SideScripts") -> bool:
        share = self._shares.get(name, 0)
        return share == max(self._shares.values()) or (share >= USUAL and share * _OTHER >= other._shares.get(name, 0))


def _letters(text: str) -> Counter[str]:
    """The number of letters of each script."""
    letters = Counter[str]()
    for char, count in Counter(text).items():
        if name := script(char):
            letters[name] += count * (_WIDE if east_asian_width(char) == "W" else 1)
    return letters

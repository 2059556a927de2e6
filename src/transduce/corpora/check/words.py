"""Words of a text: which of them translate each other, and which stand on both sides."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

_STEM = 5  # letters of a word that count: inflected forms and compounds then share what is learnt of them
_SEEN_OFTEN = 3  # a word seen less often would be explained by whatever stood beside it
_READ = 64  # known words of a text that are looked at, so that no endless line fills the memory

Words = list[str]
Numbers = tuple[NDArray[np.int32], NDArray[np.int64]]
"""Words of texts end to end, and how many each text has."""


class _Spacing(dict[int, str]):
    """A table for `str.translate`, filled as characters come, after which spaces part the words."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if unicodedata.category(char)[0] not in "LMN":
            spaced = " "
        elif unicodedata.east_asian_width(char) == "W":  # written without spaces: a character counts as a word
            spaced = f" {char} "
        else:
            spaced = char
        self[code] = spaced
        return spaced


_SPACING = _Spacing()


def words(text: str) -> Words:
    """The text's words, in lower case."""
    return text.casefold().translate(_SPACING).split()


def own_text(side: Words, other: Words) -> str:
    """The words of one side that the other has not: those on both are names, and tell no languages apart."""
    shared = set(side).intersection(other)
    return " ".join([word for word in side if word not in shared] if shared else side)


class Vocabulary:
    """The most frequent words of a sample, numbered by frequency."""

    def __init__(self, sample: Sequence[Words], size: int) -> None:
        counts = Counter(word[:_STEM] for text in sample for word in text)
        often = [word for word, count in counts.most_common(size) if count >= _SEEN_OFTEN]
        self._numbers = {word: number for number, word in enumerate(often)}

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, texts: Sequence[Words]) -> Numbers:
        """The known words of all texts."""
        find = self._numbers.get
        known = [[n for word in text if (n := find(word[:_STEM])) is not None][:_READ] for text in texts]
        counts = np.fromiter(map(len, known), np.int64, len(known))
        return np.fromiter(chain.from_iterable(known), np.int32, int(counts.sum())), counts

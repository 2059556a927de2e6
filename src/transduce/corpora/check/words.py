"""Words of texts and their ids in a vocabulary."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

_STEM = 5  # letters of a word that are compared, so that inflected forms and compounds share their statistics
_MIN_COUNT = 3  # a rarer word would be taken for the translation of any word that occurs with it
_MAX_WORDS = 64  # known words of a text that are used, which bounds the memory for very long lines

Words = list[str]
WordIds = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The ids of the words of all texts, concatenated, and the number of words in each text."""


class _Spacing(dict[int, str]):
    """A table for `str.translate`, filled on demand, that separates words by spaces."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if unicodedata.category(char)[0] not in "LMN":
            spaced = " "
        elif unicodedata.east_asian_width(char) == "W":  # written without spaces: each character counts as a word
            spaced = f" {char} "
        else:
            spaced = char
        self[code] = spaced
        return spaced


_SPACING = _Spacing()


def words(text: str) -> Words:
    """The words of a text, in lower case."""
    return text.casefold().translate(_SPACING).split()


def unshared_text(side: Words, other: Words) -> str:
    """The words of one side that are not on the other, without numbers: these and names tell no language."""
    shared = set(side).intersection(other)
    return " ".join([word for word in side if word not in shared and not word[0].isdigit()])


class Vocabulary:
    """The most frequent words of a sample, numbered by frequency."""

    def __init__(self, sample: Sequence[Words], size: int) -> None:
        counts = Counter(word[:_STEM] for text in sample for word in text)
        frequent = [word for word, count in counts.most_common(size) if count >= _MIN_COUNT]
        self._ids = {word: number for number, word in enumerate(frequent)}

    def __len__(self) -> int:
        return len(self._ids)

    def ids(self, texts: Sequence[Words]) -> WordIds:
        """The ids of the known words of all texts."""
        find = self._ids.get
        known = [[n for word in text if (n := find(word[:_STEM])) is not None][:_MAX_WORDS] for text in texts]
        counts = np.fromiter(map(len, known), np.int64, len(known))
        return np.fromiter(chain.from_iterable(known), np.int32, int(counts.sum())), counts

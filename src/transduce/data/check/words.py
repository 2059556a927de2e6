"""Words of a text, for counting which of them translate each other."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

_STEM = 5  # letters of a word that count: inflected forms and compounds then share what is learnt of them
_SEEN_OFTEN = 3  # a word seen less often would be explained by whatever stood beside it
_READ = 64  # known words of a text that are looked at, so that no endless line fills the memory

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


def words(text: str) -> list[str]:
    """The beginnings of the text's words, in lower case."""
    return [word[:_STEM] for word in text.casefold().translate(_SPACING).split()]


class Vocabulary:
    """The most frequent words of a sample, numbered by frequency."""

    def __init__(self, sample: Iterable[str], size: int) -> None:
        counts = Counter(chain.from_iterable(map(words, sample)))
        often = [word for word, count in counts.most_common(size) if count >= _SEEN_OFTEN]
        self._numbers = {word: number for number, word in enumerate(often)}

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, texts: Sequence[str]) -> Numbers:
        """The known words of all texts."""
        find = self._numbers.get
        known = [[n for n in map(find, words(text)) if n is not None][:_READ] for text in texts]
        counts = np.fromiter(map(len, known), np.int64, len(known))
        return np.fromiter(chain.from_iterable(known), np.int32, int(counts.sum())), counts

"""Word translation probabilities (IBM model 1), learned from the corpus, which detect unrelated pairs.

Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4.1, without the empty word.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.corpora.check.lengths import Floats

Words = list[str]
WordIds = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The ids of the words of all texts, concatenated, and the number of words in each text."""

UNRELATED = -5.0
"""Log-likelihood ratio, in nats, below which a pair is unrelated: its source makes its target less likely."""
RELATED = 0.5
"""Log-likelihood ratio, in nats for each target word, above which a pair is certainly related."""
MIN_RECALL = 0.5
"""Recall on random pairings below which the lexicon is not used: the corpus is too small or too freely translated."""

_VOCABULARY = 4096  # words of each side
_MAX_WORD_PAIRS = 5_000_000  # to learn from: a few seconds, and less than a gigabyte
_ROUNDS = 4  # of expectation maximisation
_RANDOM_PAIRINGS = 2000  # that the recall is measured on
_UNIGRAM_WEIGHT = 0.1  # of a target word's own probability in the mixture, so that no single word decides
_STEM = 5  # letters of a word that are compared, so that inflected forms and compounds share their statistics
_MIN_COUNT = 3  # a rarer word would be taken for the translation of any word that occurs with it
_MAX_WORDS = 64  # known words of a text that are used, which bounds the memory for very long lines


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
        find = self._ids.get
        known = [[n for word in text if (n := find(word[:_STEM])) is not None][:_MAX_WORDS] for text in texts]
        counts = np.fromiter(map(len, known), np.int64, len(known))
        return np.fromiter(chain.from_iterable(known), np.int32, int(counts.sum())), counts


class WordPairs(NamedTuple):
    """Every target word with every source word of its pair, concatenated."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    starts: NDArray[np.int64]
    """Where the word pairs of each target word start; there are as many as its source has words."""
    pairs: NDArray[np.int64]
    """The number of the sentence pair that each target word belongs to."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts, append=len(self.source))


def word_pairs(sources: WordIds, targets: WordIds) -> WordPairs:
    """All word pairs of sentence pairs; a pair without a known word on one side has none."""
    (src, src_counts), (tgt, tgt_counts) = sources, targets
    pairs = np.repeat(np.arange(len(tgt_counts)), tgt_counts)
    has_source = src_counts[pairs] > 0
    tgt, pairs = tgt[has_source], pairs[has_source]
    lengths = src_counts[pairs]
    starts = np.cumsum(lengths) - lengths
    src_starts = (np.cumsum(src_counts) - src_counts)[pairs]
    source = src[np.arange(int(lengths.sum())) + np.repeat(src_starts - starts, lengths)]
    return WordPairs(source, np.repeat(tgt, lengths), starts, pairs)


def train_model_1(cooccurring: WordPairs, src_words: int, tgt_words: int) -> NDArray[np.float32]:
    """p(target word | source word), by expectation maximisation from a uniform distribution."""
    probability = np.ones((src_words, tgt_words), np.float32)  # any constant will do, as the first step normalises
    if not len(cooccurring.starts):
        return probability
    index = cooccurring.source.astype(np.int64) * tgt_words + cooccurring.target
    for _ in range(_ROUNDS):
        share = probability.ravel()[index]
        share /= np.repeat(np.add.reduceat(share, cooccurring.starts), cooccurring.lengths)
        counts = np.bincount(index, share, minlength=probability.size).reshape(probability.shape)
        probability = (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-9)).astype(np.float32)
    return probability


class Lexicon:
    """For each source and target word, p(target word | source word) / p(target word)."""

    def __init__(self, sources: Sequence[Words], targets: Sequence[Words]) -> None:
        self._src, self._tgt = Vocabulary(sources, _VOCABULARY), Vocabulary(targets, _VOCABULARY)
        src, tgt = self._src.ids(sources), self._tgt.ids(targets)
        enough = int(np.searchsorted(np.cumsum(src[1] * tgt[1]), _MAX_WORD_PAIRS))
        cooccurring = word_pairs(_first(src, enough), _first(tgt, enough))
        counts = np.bincount(tgt[0], minlength=len(self._tgt))  # may be 0, as long texts are truncated
        unigram = np.maximum(counts, 1) / max(len(tgt[0]), 1)
        self._ratio = train_model_1(cooccurring, len(self._src), len(self._tgt)) / unigram.astype(np.float32)

    def log_ratios(self, sources: Sequence[Words], targets: Sequence[Words]) -> Floats:
        """For each pair, log p(target words | source words) - log p(target words)."""
        cooccurring = word_pairs(self._src.ids(sources), self._tgt.ids(targets))
        if not len(cooccurring.starts):
            return np.zeros(len(sources))
        ratios = self._ratio[cooccurring.source, cooccurring.target]
        mean_ratio = np.add.reduceat(ratios, cooccurring.starts) / cooccurring.lengths
        logs = np.log((1 - _UNIGRAM_WEIGHT) * mean_ratio + _UNIGRAM_WEIGHT)
        return np.bincount(cooccurring.pairs, logs, minlength=len(sources)).astype(np.float64)


def _first(ids: WordIds, texts: int) -> WordIds:
    words, counts = ids
    return words[: int(counts[:texts].sum())], counts[:texts]


class TwoFoldLexicon:
    """Scores every pair by a lexicon learned from the other half of the corpus, as in two-fold cross-validation."""

    def __init__(self, numbers: NDArray[np.int64], sources: Sequence[Words], targets: Sequence[Words]) -> None:
        self._lexicons: list[Lexicon] = []
        for fold in (1, 0):
            chosen = np.flatnonzero(numbers % 2 == fold).tolist()
            self._lexicons.append(Lexicon([sources[n] for n in chosen], [targets[n] for n in chosen]))
        paired = targets[:_RANDOM_PAIRINGS]
        half = len(paired) // 2
        rotated = [*paired[half:], *paired[:half]]
        ratios = self.log_ratios(numbers[:_RANDOM_PAIRINGS], sources[:_RANDOM_PAIRINGS], rotated)
        self.recall = float((ratios < UNRELATED).mean())
        """Share of random pairings that are detected as unrelated."""

    def log_ratios(self, numbers: NDArray[np.int64], sources: Sequence[Words], targets: Sequence[Words]) -> Floats:
        """The log-likelihood ratios of pairs with these numbers in the corpus."""
        ratios = np.zeros(len(numbers))
        for fold, lexicon in enumerate(self._lexicons):
            chosen = np.flatnonzero(numbers % 2 == fold).tolist()
            ratios[chosen] = lexicon.log_ratios([sources[n] for n in chosen], [targets[n] for n in chosen])
        return ratios

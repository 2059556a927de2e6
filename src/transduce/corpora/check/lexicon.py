"""Which words translate each other (IBM model 1, learnt from the corpus itself), and pairs in which they do not.

Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4.1, without the empty word.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.corpora.check.robust import Floats
from transduce.corpora.check.words import Numbers, Vocabulary, Words

UNRELATED = -5.0
"""Nats by which a source must make its target less likely than it is by itself for the two to be called unrelated."""
RELATED = 0.5
"""Nats a target word by which a source must make its target likelier for the two to be surely related."""
CREDIBLE = 0.5
"""Share of random pairings that must be found unrelated, or the corpus is too small or too free to be judged so."""

_VOCABULARY = 4096  # words of each side
_CELLS = 5_000_000  # pairs of words that are learnt from: a few seconds, and less than a gigabyte
_ROUNDS = 4  # of expectation maximisation
_TRIED = 2000  # random pairings by which a lexicon is judged in turn
_DOUBT = 0.1  # the chance we give a word to come from nowhere, so that no word alone condemns a pair


class Cells(NamedTuple):
    """Every target word beside every source word of its pair, laid end to end."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    starts: NDArray[np.int64]
    """Where the cells of each target word begin: as many as its source has words."""
    pairs: NDArray[np.int64]
    """The pair that each target word is of."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many cells each target word has."""
        return np.diff(self.starts, append=len(self.source))


def lay_out(sources: Numbers, targets: Numbers) -> Cells:
    """The cells of pairs; a pair without a word on one side has none."""
    (src, src_counts), (tgt, tgt_counts) = sources, targets
    pairs = np.repeat(np.arange(len(tgt_counts)), tgt_counts)
    has_source = src_counts[pairs] > 0
    tgt, pairs = tgt[has_source], pairs[has_source]
    lengths = src_counts[pairs]
    starts = np.cumsum(lengths) - lengths
    src_starts = (np.cumsum(src_counts) - src_counts)[pairs]
    source = src[np.arange(int(lengths.sum())) + np.repeat(src_starts - starts, lengths)]
    return Cells(source, np.repeat(tgt, lengths), starts, pairs)


def learn(cells: Cells, src_words: int, tgt_words: int) -> NDArray[np.float32]:
    """p(target word | source word), by expectation maximisation from a uniform start."""
    chance = np.ones((src_words, tgt_words), np.float32)  # any constant is uniform: only shares of it count
    if not len(cells.starts):
        return chance
    index = cells.source.astype(np.int64) * tgt_words + cells.target
    for _ in range(_ROUNDS):
        share = chance.ravel()[index]
        share /= np.repeat(np.add.reduceat(share, cells.starts), cells.lengths)
        counts = np.bincount(index, share, minlength=chance.size).reshape(chance.shape)
        chance = (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-9)).astype(np.float32)
    return chance


class Lexicon:
    """How much likelier each target word is beside each source word than by itself."""

    def __init__(self, sources: Sequence[Words], targets: Sequence[Words]) -> None:
        self._src, self._tgt = Vocabulary(sources, _VOCABULARY), Vocabulary(targets, _VOCABULARY)
        src, tgt = self._src.numbers(sources), self._tgt.numbers(targets)
        enough = int(np.searchsorted(np.cumsum(src[1] * tgt[1]), _CELLS))
        cells = lay_out(_first(src, enough), _first(tgt, enough))
        counts = np.bincount(tgt[0], minlength=len(self._tgt))  # of texts cut short: some words may be cut off
        alone = np.maximum(counts, 1) / max(len(tgt[0]), 1)
        self._gain = learn(cells, len(self._src), len(self._tgt)) / alone.astype(np.float32)

    def log_gains(self, sources: Sequence[Words], targets: Sequence[Words]) -> Floats:
        """For each pair, the log of how much likelier the target's words are given the source than by themselves."""
        cells = lay_out(self._src.numbers(sources), self._tgt.numbers(targets))
        if not len(cells.starts):
            return np.zeros(len(sources))
        mean_gain = np.add.reduceat(self._gain[cells.source, cells.target], cells.starts) / cells.lengths
        logs = np.log((1 - _DOUBT) * mean_gain + _DOUBT)
        return np.bincount(cells.pairs, logs, minlength=len(sources)).astype(np.float64)


def _first(numbers: Numbers, texts: int) -> Numbers:
    words, counts = numbers
    return words[: int(counts[:texts].sum())], counts[:texts]


class HalvedLexicon:
    """Judges every pair by what the other half of the corpus says: no pair speaks for itself."""

    def __init__(self, numbers: NDArray[np.int64], sources: Sequence[Words], targets: Sequence[Words]) -> None:
        self._judges: list[Lexicon] = []
        for half in (1, 0):
            chosen = np.flatnonzero(numbers % 2 == half).tolist()
            self._judges.append(Lexicon([sources[n] for n in chosen], [targets[n] for n in chosen]))
        tried, half_way = targets[:_TRIED], len(targets[:_TRIED]) // 2
        turned = [*tried[half_way:], *tried[:half_way]]
        self.finds = float((self.log_gains(numbers[:_TRIED], sources[:_TRIED], turned) < UNRELATED).mean())
        """The share of random pairings that are found unrelated."""

    def log_gains(self, numbers: NDArray[np.int64], sources: Sequence[Words], targets: Sequence[Words]) -> Floats:
        """Of pairs with these numbers in the corpus."""
        gains = np.zeros(len(numbers))
        for half, judge in enumerate(self._judges):
            chosen = np.flatnonzero(numbers % 2 == half).tolist()
            gains[chosen] = judge.log_gains([sources[n] for n in chosen], [targets[n] for n in chosen])
        return gains

"""Learns a lexical shortlist from sentence pairs, by IBM model 1.

Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4.1, without the empty word.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from transduce.fast.native.shortlist import Shortlist
from transduce.tokenizers.tokenizer import EOS

FREQUENT, PER_TOKEN = 4000, 200
_MOST_LINKS = 20_000_000
"""Links between the tokens of pairs to learn from; with more, every n-th pair is used. Takes about a gigabyte."""
_COMMON, _LARGE = 0.05, 10_000
"""Share of the sentences above which a source token, such as an article, explains no target token, and the number of
sentences from which this applies: it saves half of the links."""
_ROUNDS = 4
"""Rounds of expectation maximisation."""
_MIN_PROBABILITY = 1e-4
"""Of a target token given a source token, below which it is no candidate."""
_Ids = npt.NDArray[np.int64]


class Direction(NamedTuple):
    """The pairs of one direction of a model."""

    sources: Sequence[Sequence[int]]
    targets: Sequence[Sequence[int]]
    marker: int = EOS
    """The source token that has the most frequent target tokens as its candidates: EOS, or the tag of the language."""


def learn_shortlist(
    directions: Sequence[Direction],
    vocab_size: int,
    frequent: int = FREQUENT,
    per_token: int = PER_TOKEN,
    source_vocab_size: int | None = None,
) -> Shortlist:
    """Learn a shortlist from the pairs of all directions of a model.

    The `frequent` most frequent target tokens of a direction are candidates of all its sentences. Of the others, each
    source token has the `per_token` that translate it with the highest probability. `source_vocab_size` is that of a
    vocabulary of the source's own.
    """
    sources = source_vocab_size or vocab_size
    size = max(sources, vocab_size)
    found = [_learn(direction, size, frequent, per_token) for direction in directions]
    keys = np.unique(np.concatenate([np.zeros(0, np.int64), *found]))  # source * size + target, ascending
    offsets = np.searchsorted(keys, np.arange(sources + 1) * size)
    starts, candidates = (array("i", numbers.tolist()) for numbers in (offsets, keys % size))
    return Shortlist(starts, candidates, copies=source_vocab_size is None)


def _learn(direction: Direction, vocab_size: int, frequent: int, per_token: int) -> _Ids:
    """The candidates of one direction as numbers: source * vocab_size + target."""
    sources, targets = (_tokens_of(side, vocab_size) for side in direction[:2])
    number = len(direction.sources)
    words = np.bincount(sources[1], minlength=vocab_size) <= (_COMMON if number >= _LARGE else 1) * number
    words[direction.marker] = False
    target_count = np.bincount(targets[1], minlength=vocab_size)
    target_count[: EOS + 1] = 0
    common = np.argsort(-target_count, kind="stable")[:frequent]
    common = common[target_count[common] > 0]
    rare = np.ones(vocab_size, bool)
    rare[: EOS + 1] = rare[common] = False
    keys, probability = _translations(sources[:, words[sources[1]]], targets[:, rare[targets[1]]], vocab_size)
    source = keys // vocab_size
    order = np.lexsort((-probability, source))
    order = order[probability[order] >= _MIN_PROBABILITY]
    first = np.searchsorted(source[order], np.arange(vocab_size))
    rank = np.arange(len(order)) - first[source[order]]
    return np.concatenate([keys[order[rank < per_token]], direction.marker * vocab_size + common])


def _tokens_of(side: Sequence[Sequence[int]], vocab_size: int) -> _Ids:
    """Every token of every sentence once: the numbers of the sentences, ascending, and the tokens."""
    lengths = np.fromiter(map(len, side), np.int64, len(side))
    tokens = np.fromiter((token for tokens in side for token in tokens), np.int64, int(lengths.sum()))
    return np.stack(np.divmod(np.unique(np.repeat(np.arange(len(side)), lengths) * vocab_size + tokens), vocab_size))


def _translations(sources: _Ids, targets: _Ids, vocab_size: int) -> tuple[_Ids, npt.NDArray[np.float64]]:
    """Source and target tokens that occur together, as source * vocab_size + target, and the probability of each."""
    first, last = (np.searchsorted(sources[0], targets[0], side) for side in ("left", "right"))
    every = -(-int((last - first).sum()) // _MOST_LINKS)
    chosen = (targets[0] % max(every, 1) == 0) & (last > first)
    lengths = (last - first)[chosen]  # links of each target token: one to every source token of its pair
    starts = np.cumsum(lengths) - lengths
    source = sources[1][np.arange(lengths.sum()) + np.repeat(first[chosen] - starts, lengths)]
    keys, link = np.unique(source * vocab_size + np.repeat(targets[1][chosen], lengths), return_inverse=True)
    source = keys // vocab_size
    probability = np.ones(len(keys))
    for _ in range(_ROUNDS if len(keys) else 0):
        weight = probability[link]
        weight /= np.repeat(np.add.reduceat(weight, starts), lengths)
        count = np.bincount(link, weight)
        probability = count / np.bincount(source, count)[source]
    return keys, probability

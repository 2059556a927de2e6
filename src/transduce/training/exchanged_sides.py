"""Finds validation text whose sides are exchanged with respect to the training text."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from transduce.data.data_config import DataConfig
from transduce.data.prepare import Prepared

_TRAIN_PAIRS, _VALID_PAIRS = 2000, 200
"""Numbers of pairs that are compared."""
_MARGIN = 0.3
"""By how much the exchanged sides must be more similar, of at most 2: two languages with the same words are not."""


def warn_of_exchanged_sides(data: DataConfig, prepared: Prepared, log: Callable[[str], None]) -> None:
    """Warn of validation text whose sources have the tokens of training targets, and whose targets those of sources.

    Models with several directions or separate vocabularies are not checked.
    """
    tokenizer, shards = prepared.tokenizer, prepared.train
    if data.directions or tokenizer.target is not tokenizer or not prepared.valid:
        return
    numbers = np.linspace(0, shards.distinct - 1, min(_TRAIN_PAIRS, shards.distinct)).astype(np.int64)
    train = _directions(zip(*shards.pairs(numbers), strict=True), tokenizer.vocab_size)
    for files, (start, end) in zip(data.all_valid, pairwise(accumulate(prepared.valid_sizes, initial=0)), strict=True):
        chosen = prepared.valid[start : min(end, start + _VALID_PAIRS)]
        sides = zip(*chosen, strict=True)
        valid = _directions((tokenizer.encode_all(list(side)) for side in sides), tokenizer.vocab_size)
        as_read, exchanged = (float(np.sum(train * other)) for other in (valid, valid[::-1]))
        if chosen and exchanged > as_read + _MARGIN:
            log(
                f"warning: the sources of {' + '.join(files)} look like the targets of the training text, and its "
                "targets like the sources; check their columns"
            )


def _directions(sides: Iterable[Sequence[Any]], size: int) -> Any:
    """For each side, the square roots of the frequencies of its tokens, as a vector of length 1."""
    counts = [np.bincount(np.concatenate([np.asarray(ids, int) for ids in side]), minlength=size) for side in sides]
    return np.sqrt([count / max(1, count.sum()) for count in counts])

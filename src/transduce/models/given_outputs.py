"""What a model predicts about outputs that are given: alignment with the source, log-probabilities.

A torch module computes it with torch, a stored model with numpy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from transduce.models.stored import AnyModel, StoredModel
from transduce.text.tokenizer import EOS

_BATCH_TOKENS = 4096
_ALIGNED_TOGETHER = 64

T = TypeVar("T")
Floats = npt.NDArray[np.float32]
Pairs = Sequence[tuple[list[int], list[int]]]
"""Source and target tokens, without markers."""


@dataclass(frozen=True)
class TokenStatistics:
    """What a model predicts at each token of a target, and at its end marker."""

    log_prob_T: Floats
    """Log-probability of the token."""
    entropy_T: Floats
    """Entropy of the distribution over the vocabulary, in nats."""
    attention_T: Floats
    """Highest weight of the cross-attention that aligns; 0 if the model has none."""


def can_align(model: AnyModel) -> bool:
    """Whether the model has a cross-attention that aligns output tokens with source tokens."""
    return isinstance(model, StoredModel) or model.alignment_attention is not None


def attention_weights(model: AnyModel, pairs: Pairs) -> Iterator[Floats]:
    """For each pair, the attention weights (T, S) of the target tokens and end marker over those of the source.

    They are the mean over the heads of one layer, `Model.alignment_attention`.
    """
    for start in range(0, len(pairs), _ALIGNED_TOGETHER):
        chunk = pairs[start : start + _ALIGNED_TOGETHER]
        sources, outputs = [source for source, _ in chunk], [output for _, output in chunk]
        if isinstance(model, StoredModel):
            weights_BTS = model.forward_pass.hidden(sources, outputs)[1]
        else:
            from transduce.models.alignment import cross_attention

            weights_BTS = cross_attention(model, sources, outputs).float().cpu().numpy()
        for weights_TS, (source, output) in zip(weights_BTS, chunk, strict=True):
            yield weights_TS[: len(output) + 1, : len(source) + 1]


def token_log_probs(model: AnyModel, pairs: Pairs) -> list[list[float]]:
    """The log-probability of each target token and of the end marker, for pairs of source and target tokens."""
    if isinstance(model, StoredModel):
        return [one.log_prob_T.tolist() for one in token_statistics(model, pairs)]
    from transduce.models import likelihood

    return likelihood.token_log_probs(model, pairs)


def token_statistics(model: AnyModel, pairs: Pairs) -> list[TokenStatistics]:
    """The statistics of each target token and of the end marker, for pairs of source and target tokens."""
    if not isinstance(model, StoredModel):
        from transduce.models import likelihood

        return likelihood.token_statistics(model, pairs)
    results: dict[int, TokenStatistics] = {}
    forward = model.forward_pass
    for numbers in batches(pairs):
        own = [pairs[number] for number in numbers]
        hidden_LD, attention_BTS = forward.hidden([source for source, _ in own], [target for _, target in own])
        labels = [np.array([*target, EOS]) for _, target in own]
        log_prob_L, entropy_L = forward.predictions(hidden_LD, np.concatenate(labels))
        ends = np.cumsum([len(label) for label in labels])[:-1]
        split = zip(np.split(log_prob_L, ends), np.split(entropy_L, ends), attention_BTS.max(axis=2), strict=True)
        for number, (log_prob_T, entropy_T, highest_T) in zip(numbers, split, strict=True):
            results[number] = TokenStatistics(log_prob_T, entropy_T, highest_T[: len(log_prob_T)])
    return [results[number] for number in range(len(pairs))]


def batches(pairs: Pairs) -> Iterator[list[int]]:
    """Indices of pairs of similar length."""
    numbers = sorted(range(len(pairs)), key=lambda n: [len(side) for side in reversed(pairs[n])])
    return in_batches(numbers, [max(map(len, pairs[number])) + 1 for number in numbers])


def in_batches(items: Sequence[T], sizes: Sequence[int]) -> Iterator[list[T]]:
    """Consecutive items with at most _BATCH_TOKENS tokens together, at least one."""
    batch: list[T] = []
    tokens = 0
    for item, size in zip(items, sizes, strict=True):
        if batch and tokens + size > _BATCH_TOKENS:
            yield batch
            batch, tokens = [], 0
        batch.append(item)
        tokens += size
    if batch:
        yield batch

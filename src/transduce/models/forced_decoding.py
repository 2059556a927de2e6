"""What a model predicts about given outputs (forced decoding): alignment with the source, log-probabilities.

A torch module is read with torch; an engine that can, reads itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from transduce.models.model import Model

_BATCH_TOKENS = 4096
_ALIGNED_TOGETHER = 64

T = TypeVar("T")
Pairs = Sequence[tuple[list[int], list[int]]]
"""Source and target tokens, without markers."""
Attention = list[list[float]]
"""The attention weights (T, S) of the target tokens and end marker over the source tokens and end marker."""


@dataclass(frozen=True)
class TokenStatistics:
    """What a model predicts at each token of a target, and at its end marker."""

    log_prob_T: list[float]
    """Log-probability of the token."""
    entropy_T: list[float]
    """Entropy of the distribution over the vocabulary, in nats."""
    attention_T: list[float]
    """Highest weight of the cross-attention that aligns; 0 if the model has none."""


@runtime_checkable
class OutputReader(Protocol):
    """An engine that scores and aligns given outputs itself, as the functions of these names do."""

    aligns: bool
    """Whether it has attention weights; also a property of a model."""

    def attention_weights(self, pairs: Pairs) -> list[Attention]: ...

    def token_statistics(self, pairs: Pairs) -> list[TokenStatistics]: ...


Reader: TypeAlias = "Model | OutputReader"
"""What reads outputs: a torch module, or an engine."""


def attention_weights(reader: Reader, pairs: Pairs) -> Iterator[Attention]:
    """For each pair, the weights of one layer, `Model.alignment_attention`: the mean over its heads."""
    if isinstance(reader, OutputReader):
        yield from reader.attention_weights(pairs)
        return
    from transduce.models.likelihood import cross_attention

    for start in range(0, len(pairs), _ALIGNED_TOGETHER):
        chunk = pairs[start : start + _ALIGNED_TOGETHER]
        weights_BTS = cross_attention(reader, [source for source, _ in chunk], [output for _, output in chunk])
        for weights_TS, (source, output) in zip(weights_BTS, chunk, strict=True):
            yield weights_TS[: len(output) + 1, : len(source) + 1].tolist()


def token_log_probs(reader: Reader, pairs: Pairs) -> list[list[float]]:
    """The log-probability of each target token and of the end marker, for pairs of source and target tokens."""
    if isinstance(reader, OutputReader):
        return [statistics.log_prob_T for statistics in reader.token_statistics(pairs)]
    from transduce.models import likelihood

    return likelihood.token_log_probs(reader, pairs)


def token_statistics(reader: Reader, pairs: Pairs) -> list[TokenStatistics]:
    """The statistics of each target token and of the end marker, for pairs of source and target tokens."""
    if isinstance(reader, OutputReader):
        return reader.token_statistics(pairs)
    from transduce.models import likelihood

    return likelihood.token_statistics(reader, pairs)


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

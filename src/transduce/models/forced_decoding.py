"""The contract of forced decoding: what a model predicts about outputs that exist, and how it aligns them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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
    """What reads outputs: an engine that can, or a torch module (`ModuleReader` in models/likelihood.py)."""

    @property
    def aligns(self) -> bool:
        """Whether there are attention weights."""

    def attention_weights(self, pairs: Pairs) -> Iterable[Attention]:
        """For each pair, the weights of one layer, `Model.alignment_attention`: the mean over its heads."""

    def token_log_probs(self, pairs: Pairs) -> list[list[float]]:
        """The log-probability of each target token and of the end marker."""

    def token_statistics(self, pairs: Pairs) -> list[TokenStatistics]:
        """The statistics of each target token and of the end marker."""

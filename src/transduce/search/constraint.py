"""The `Constraint` contract: which tokens may follow each hypothesis, whatever the model predicts."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor


class Constraint(Protocol):
    """Restricts the outputs of a batch of sentences, so that every finished output is valid."""

    @property
    def limits(self) -> Sequence[int]:
        """The number of tokens of the longest valid output of each sentence."""

    def allowed(self, sentence_B: Sequence[int], prefix_BWT: Tensor, vocab_size: int) -> Tensor:
        """Whether each token may follow each hypothesis of these sentences, as a mask (B, W, V).

        It is a function of the hypothesis's tokens only. After a prefix that consists of allowed tokens, at least one
        token is allowed, unless the prefix ends with the end marker; the mask of any other prefix does not matter.
        """


MakeConstraint = Callable[[Sequence[Sequence[int]], torch.device], Constraint]
"""Makes the constraint of a batch from the source tokens of its sentences."""

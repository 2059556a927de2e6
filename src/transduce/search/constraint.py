"""Which tokens may follow each hypothesis, whatever the model predicts: the `Constraint` contract, and symbols."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from transduce.tokenizers.tokenizer import EOS


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


class SymbolRule:
    """Of some reserved symbols, sentence b contains each of once[b] exactly once and no other."""

    def __init__(self, reserved: range, once: Sequence[Sequence[int]], device: torch.device | str) -> None:
        self._reserved = reserved
        self._symbol_K = torch.arange(reserved.start, reserved.stop, device=device)
        self._wanted_BK = torch.tensor([[symbol in wanted for symbol in reserved] for wanted in once], device=device)

    def apply(
        self, log_prob_BWV: Tensor, sentence_B: Sequence[int], prefix_BWT: Tensor, exempt_B: Tensor | None = None
    ) -> None:
        """Set symbols that are not wanted or are in a prefix, and the end marker if a symbol lacks, to -inf in place.

        Sentences that are exempt have a forced token.
        """
        missing_BWK = self._wanted_BK[sentence_B, None] & ~(prefix_BWT[..., None] == self._symbol_K).any(2)
        forbidden_BWK, lacks_BW = ~missing_BWK, missing_BWK.any(-1)
        if exempt_B is not None:
            forbidden_BWK &= ~exempt_B[:, None, None]
            lacks_BW &= ~exempt_B[:, None]
        log_prob_BWV[:, :, self._reserved.start : self._reserved.stop].masked_fill_(forbidden_BWK, -torch.inf)
        log_prob_BWV[:, :, EOS].masked_fill_(lacks_BW, -torch.inf)

"""The three calls between search and whatever it searches with."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from transduce.text.tokenizer import BOS, EOS, PAD, UNK

NEVER_SAID = [PAD, UNK, BOS]
"""Markers that no output holds."""

Length = TypeVar("Length", float, Tensor)


@runtime_checkable
class Decoder(Protocol):
    """Anything that says, row by row, how likely each next token is. State is the decoder's own affair."""

    def start(self, source: Any) -> Any:
        """The state before the first token, with one row for each sentence."""

    def step(self, token_R: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Take one token per row; the logits (R, V) of the next, and the new state."""

    def reorder(self, state: Any, index_BW: Tensor) -> Any:
        """The state in which sentence b has W rows, the old rows index_BW[b]; sentences may leave, in order."""


@dataclass(frozen=True)
class Hypothesis:
    """One finished output."""

    tokens: list[int]
    """Without markers."""
    log_prob: float
    """Sum over the tokens and the end marker."""
    score: float
    """What hypotheses are ranked by: log_prob over the length penalty."""


def forbid_repeats(log_prob_RV: Tensor, said_RT: Tensor, t: int, length: int) -> None:
    """Rule out, in place, every token with which a run of `length` tokens would come a second time; t are said."""
    for row, said in enumerate(said_RT[:, :t].tolist()):
        last = said[t - length + 1 :] if length > 1 else []
        repeats = [said[i + length - 1] for i in range(t - length + 1) if said[i : i + length - 1] == last]
        log_prob_RV[row, [token for token in repeats if token != EOS]] = -torch.inf


def length_penalty(length: Length, alpha: float) -> Length:
    """((5 + length) / 6)^alpha of the paper's reference [38]; the end marker counts as a token."""
    return ((5 + length) / 6) ** alpha

"""The `Decoder` contract between search and a model, and the parts that all searches share."""

from collections.abc import Generator
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from transduce.tokenizers.tokenizer import BOS, EOS, PAD, UNK

if TYPE_CHECKING:
    from torch import Tensor

NEVER_GENERATED = [PAD, UNK, BOS]
"""Markers that an output never contains."""

Length = TypeVar("Length", float, "Tensor")


@runtime_checkable
class Decoder(Protocol):
    """A model that predicts the next token of each row. Search does not look into the state that it passes along."""

    def start(self, source: Any) -> Any:
        """The state before the first token, with one row per sentence."""

    def step(self, token_R: "Tensor", state: Any) -> "tuple[Tensor, Any]":
        """Process one token per row; returns the logits (R, V) of the next token, and the new state."""

    def reorder(self, state: Any, index_BW: "Tensor") -> Any:
        """The state whose sentence b has the old rows index_BW[b]; sentences may be removed, in order."""


class Hypothesis(NamedTuple):
    """One finished output."""

    tokens: list[int]
    """Token ids, without markers."""
    log_prob: float
    """Log-probability: the sum over the tokens and the end marker."""
    score: float
    """Ranking score: log_prob divided by the length penalty."""


SearchSteps = Generator[None, None, list[list[Hypothesis]]]
"""A search that can be interrupted after every step; it returns the hypotheses of each sentence, best first."""


def last_result(steps: SearchSteps) -> list[list[Hypothesis]]:
    """Take all steps of a search."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def block_repeated_ngrams(log_prob_RV: "Tensor", generated_RT: "Tensor", t: int, n: int) -> None:
    """Set to -inf, in place, every token that would repeat an n-gram of the first t generated tokens of its row."""
    for row, tokens in enumerate(generated_RT[:, :t].tolist()):
        last = tokens[t - n + 1 :] if n > 1 else []
        repeats = [tokens[i + n - 1] for i in range(t - n + 1) if tokens[i : i + n - 1] == last]
        log_prob_RV[row, [token for token in repeats if token != EOS]] = -inf


def forbid_end(log_prob_RV: "Tensor", exempt_R: "Tensor | None" = None) -> None:
    """Set the end marker to -inf, in place, except in rows that are exempt or in which no other token is allowed."""
    keep_R = log_prob_RV[:, EOS + 1 :].isneginf().all(-1)
    if exempt_R is not None:
        keep_R |= exempt_R
    log_prob_RV[:, EOS].masked_fill_(~keep_R, -inf)


def length_penalty(length: Length, alpha: float) -> Length:
    """((5 + length) / 6)^alpha of the paper's reference [38]; the end marker counts as a token."""
    return ((5 + length) / 6) ** alpha

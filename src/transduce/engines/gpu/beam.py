"""Beam search whose whole state lies on the GPU, in slots that sentences enter and leave at any step.

It finds what `beam.beam_search` finds; with one row a slot, what greedy search finds. A step is two kernels and no word
from the CPU, so it can be recorded as a CUDA graph together with the model's. Tokens said are never copied when
hypotheses change rows: `ancestor[r, p]` says in which row of the slot the token lies that hypothesis r has at place p.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
from torch import Tensor

from transduce.engines.gpu.beam_kernels import advance, begin, summarise
from transduce.nn.device import send
from transduce.search.decoder import Hypothesis
from transduce.text.tokenizer import BOS, EOS, PAD, UNK

_PART, _PARTS_AT_ONCE = 128, 32
"""Words of a part of the vocabulary, and parts that one program summarises."""


@dataclass(slots=True)
class Entry:
    """A sentence on its way into a slot."""

    ticket: int
    """Above 0, and of no other sentence."""
    limit: int
    """Tokens its output may have."""
    prefix: Sequence[int]
    """What its output must begin with."""


class SlotBeam:
    """S slots of W hypotheses, each slot at its own place P of its own sentence."""

    def __init__(self, slots: int, beam: int, places: int, vocab_size: int, device: torch.device) -> None:
        S, R = slots, slots * beam

        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.slots, self.beam, self.places, self.vocab_size = slots, beam, places, vocab_size
        self.ticket_S, self.done_S, self.limit_S = zeros(S), zeros(S), zeros(S)
        """The sentence in each slot, 0 for none; the last that was finished there; tokens it may say."""
        self.position_R = zeros(R)
        """Tokens said, the same in all rows of a slot."""
        self.forced_SP = zeros(S, places)
        """The only token that may be said at a place, -1 for any."""
        self.token_R, self.said_RP, self.ancestor_RP = zeros(R), zeros(R, places), zeros(R, places, dtype=torch.uint8)
        self.alive_R = zeros(R, dtype=torch.float32)
        """Log-probabilities of the unfinished hypotheses."""
        self.ended_RP, self.ended_length_R = zeros(R, places), zeros(R)
        """The best finished ones, in no order."""
        self.ended_log_prob_R, self.ended_score_R = (zeros(R, dtype=torch.float32) for _ in range(2))
        self.alpha_1, self.nbest_1 = zeros(1, dtype=torch.float32), zeros(1)
        parts = -(-vocab_size // _PART)
        self._best_RX, self._log_total_RX = (zeros(R, parts, dtype=torch.float32) for _ in range(2))

    def enter(self, slot_A: Tensor, entries: Sequence[Entry]) -> None:
        """Begin these sentences in these slots."""
        table_A = np.full((len(entries), 2 + self.places), -1, dtype=np.int32)  # ticket, limit, forced tokens
        table_A[:, 0], table_A[:, 1] = [entry.ticket for entry in entries], [entry.limit for entry in entries]
        table_A[np.arange(len(entries)), 2 + table_A[:, 1]] = EOS
        for line, entry in zip(table_A, entries, strict=True):
            if entry.prefix:
                line[2 : 2 + len(entry.prefix)] = entry.prefix
        begin[(len(entries),)](
            send(table_A, self.token_R.device), slot_A, self.ticket_S, self.limit_S, self.position_R,
            self.forced_SP, self.token_R, self.alive_R, self.ended_score_R, self.places,
            W=self.beam, W2=triton.next_power_of_2(self.beam), P2=triton.next_power_of_2(self.places), BOS=BOS,
        )  # fmt: skip

    def leave(self, slots: Sequence[int]) -> None:
        """Stop working on these slots."""
        slot_A = send(np.array(slots), self.token_R.device)
        self.ticket_S[slot_A] = 0
        self.position_R.view(-1, self.beam)[slot_A] = 0

    def advance(self, logits_RV: Tensor) -> None:
        """One step of every slot, from the float32 logits of its rows' next tokens."""
        (R, X), W = self._best_RX.shape, self.beam
        C = 2 * W if W > 1 else 1  # of 2W at most W end, so W live ones remain
        common = {"W": W, "PART": _PART, "PAD": PAD, "UNK": UNK, "BOS": BOS}
        summarise[(R, triton.cdiv(X, _PARTS_AT_ONCE))](
            logits_RV, self.ticket_S, self.position_R, self.forced_SP, self._best_RX, self._log_total_RX,
            self.vocab_size, X, self.places, PARTS_AT_ONCE=_PARTS_AT_ONCE, num_warps=8, **common,
        )  # fmt: skip
        advance[(self.slots,)](
            logits_RV, self._best_RX, self._log_total_RX, self.ticket_S, self.done_S, self.position_R, self.limit_S,
            self.forced_SP, self.token_R, self.said_RP, self.ancestor_RP, self.alive_R, self.ended_RP,
            self.ended_length_R, self.ended_log_prob_R, self.ended_score_R, self.alpha_1, self.nbest_1,
            self.vocab_size, X, self.places, W2=triton.next_power_of_2(W), C=C, C2=triton.next_power_of_2(C),
            X2=triton.next_power_of_2(X), P2=triton.next_power_of_2(self.places), EOS=EOS, num_warps=4, **common,
        )  # fmt: skip

    def ended(self, slots: Sequence[int]) -> list[Tensor]:
        """What has ended in these slots, on the device: tokens, lengths, log-probabilities, scores."""
        slot_A, W = send(np.array(slots), self.token_R.device), self.beam
        tables = (self.ended_RP, self.ended_length_R, self.ended_log_prob_R, self.ended_score_R)
        return [x.view(self.slots, W, *x.shape[1:]).index_select(0, slot_A) for x in tables]


def hypotheses(ended: Sequence[Tensor], nbest: int) -> list[list[Hypothesis]]:
    """The best of what `ended` gave, once it is on the CPU."""
    tokens_AWP, length_AW, log_prob_AW, score_AW = (x.numpy() for x in ended)
    order_AW = np.argsort(-score_AW, axis=1, kind="stable")[:, :nbest]
    tokens = np.take_along_axis(tokens_AWP[:, :, : length_AW.max()], order_AW[:, :, None], axis=1).tolist()
    facts = (np.take_along_axis(x, order_AW, axis=1).tolist() for x in (length_AW, log_prob_AW, score_AW))
    return [
        [
            Hypothesis(said[:length], log_prob, score)
            for said, length, log_prob, score in zip(*group, strict=True)
            if score > -np.inf
        ]
        for group in zip(tokens, *facts, strict=True)
    ]

"""Beam search with its state on the GPU, in slots that sentences enter and leave at any step (continuous batching).

The results are those of `search.beam.beam_search`; with one row per slot, those of greedy search. A step is two kernels
without a synchronisation, so it can be recorded in a CUDA graph together with the model's kernels. Tokens are not
copied when hypotheses change rows: position p of hypothesis r is stored in row `ancestor[r, p]` of the slot.
"""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
import triton
from torch import Tensor

from transduce.fast.gpu.beam_kernels import advance, project, start_slots
from transduce.fast.kernels.common import early
from transduce.fast.limits import ANY, ANY_BUT_END
from transduce.nn.device import send, staging
from transduce.search.decoder import Hypothesis
from transduce.tokenizers.tokenizer import BOS, EOS, PAD, UNK

_PART = 128
"""Tokens in a part of the vocabulary."""
_TILES = ((64, (64, 4, 4)), (1024, (128, 8, 3)), (1 << 31, (128, 4, 3)))
"""The most rows, and the tile of logits that is the fastest with them on an H200: its rows, warps and stages."""
_FIELDS = 7
"""Numbers of an entry before its forced tokens."""


class Entry(NamedTuple):
    """A sentence that is assigned to a slot."""

    slot: int
    source_length: int
    job_id: int
    """Positive, and different from that of every other sentence."""
    limit: int
    """Maximum number of output tokens."""
    first_symbol: int
    symbols: int
    """The number of reserved symbols: `Job.reserved`."""
    missing: int
    """Those of them that the output must contain, as bits."""
    prefix: Sequence[int]
    """Forced prefix: the tokens the output must begin with."""


class SlotBeam:
    """S slots of W hypotheses each, with up to P positions; slots advance independently of each other."""

    def __init__(
        self, slots: int, beam: int, positions: int, vocab_size: int, device: torch.device, begin: int = 0
    ) -> None:
        """`begin` is the number of forced first tokens that are no part of outputs."""
        S, R = slots, slots * beam

        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.slots, self.beam, self.positions, self.vocab_size = slots, beam, positions, vocab_size
        self.source_length_S, self.job_id_S, self.limit_S = zeros(S), zeros(S), zeros(S)
        """The length of the source in each slot; the job, 0 if empty; the maximum number of output tokens."""
        self.done_S = torch.zeros(S, dtype=torch.int32, pin_memory=device.type == "cuda")
        """The job that finished last in each slot; in memory that the CPU reads while the GPU writes it."""
        self.position_R = zeros(R)
        """Number of tokens generated, the same in all rows of a slot."""
        self.forced_SP = zeros(S, positions)
        """The only token allowed at a position, ANY or ANY_BUT_END."""
        self.symbols_S2, self.missing_R = zeros(S, 2), zeros(R)
        """The first and the number of the symbols, which occur only if they are missing, and then once."""
        self.token_R, self.generated_RP = zeros(R), zeros(R, positions)
        self.ancestor_RP = zeros(R, positions, dtype=torch.uint8)
        self.alive_R = zeros(R, dtype=torch.float32)
        """Log-probabilities of the unfinished hypotheses."""
        self.finished_XR = zeros(positions + 3, R)
        """The best finished hypotheses, unsorted; see `_parts`."""
        self.alpha_1, self.nbest_1 = zeros(1, dtype=torch.float32), zeros(1)
        self.begin, self.min_length = begin, 0
        """Minimum number of output tokens of the sentences that enter."""
        parts = -(-vocab_size // _PART)
        self._best_RX, self._log_total_RX = (zeros(R, parts, dtype=torch.float32) for _ in range(2))

    def enter(self, entries: Sequence[Entry]) -> None:
        """Start these sentences."""
        staged = staging((len(entries), _FIELDS + self.positions), self.token_R.device)
        table_A = staged.numpy()  # fields, then forced tokens
        table_A.fill(ANY)
        table_A[:, _FIELDS : _FIELDS + self.begin + self.min_length] = ANY_BUT_END
        table_A[:, :_FIELDS] = [entry[:_FIELDS] for entry in entries]
        table_A[np.arange(len(entries)), _FIELDS + table_A[:, 3]] = EOS
        for number, entry in enumerate(entries):
            if entry.prefix:
                table_A[number, _FIELDS : _FIELDS + len(entry.prefix)] = entry.prefix
        start_slots[(len(entries),)](
            staged.to(self.token_R.device, non_blocking=True), self.source_length_S, self.job_id_S, self.limit_S,
            self.position_R, self.forced_SP, self.symbols_S2, self.missing_R, self.token_R, self.alive_R,
            _parts(self.finished_XR)[3], self.positions, FIELDS=_FIELDS, BOS=BOS, W=self.beam,
            W2=triton.next_power_of_2(self.beam), P2=triton.next_power_of_2(self.positions),
        )  # fmt: skip

    def begin_after(self, slot_A: Tensor, prompts: Sequence[Sequence[int]]) -> None:
        """Let sentences that have just entered begin after prompts, whose keys and values are in their first rows."""
        device, W = self.token_R.device, self.beam
        length_A = np.array([len(prompt) for prompt in prompts], dtype=np.int32)
        table_AP = np.zeros((len(prompts), self.positions), dtype=np.int32)
        for row, prompt in zip(table_AP, prompts, strict=True):
            row[: len(prompt)] = prompt
        last_A = np.array([prompt[-1] if prompt else BOS for prompt in prompts], dtype=np.int32)
        self.generated_RP.view(-1, W, self.positions)[slot_A, 0] = send(table_AP, device)
        self.ancestor_RP.view(-1, W, self.positions)[slot_A] = 0
        self.position_R.view(-1, W)[slot_A] = send(length_A, device)[:, None]
        self.token_R.view(-1, W)[slot_A] = send(last_A, device)[:, None]

    def leave(self, slots: Sequence[int]) -> None:
        """Empty these slots."""
        slot_A = send(np.array(slots), self.token_R.device)
        self.job_id_S[slot_A] = 0
        self.position_R.view(-1, self.beam)[slot_A] = 0

    def advance(self, hidden_RD: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> None:
        """Extend the hypotheses of every slot, given the vectors and the projection that predict their next tokens."""
        (R, X), D, W, V = self._best_RX.shape, hidden_RD.shape[1], self.beam, self.vocab_size
        C = 2 * W if W > 1 else 1  # at most W of 2W end with the end marker, so at least W alive ones remain
        stride = -(-V // 16) * 16  # Triton loads several numbers at once where addresses are multiples of 16
        is_float32 = hidden_RD.dtype == torch.float32
        below_RV = hidden_RD.new_empty(R, stride, dtype=torch.float32 if is_float32 else torch.float16)
        tile, warps, stages = next(sizes for most, sizes in _TILES if most >= R)
        block = min(128 // weight_VD.element_size(), max(16, triton.next_power_of_2(D)))
        project[(triton.cdiv(X, 2) * 2 * triton.cdiv(R, tile),)](
            hidden_RD.contiguous(), weight_VD, weight_VD if bias_V is None else bias_V, below_RV, self._best_RX,
            self._log_total_RX, R, V, stride, X, BIAS=bias_V is not None, D=D, ROWS=tile, PART=_PART, BLOCK=block,
            num_warps=warps, num_stages=stages, **early(hidden_RD.device),
        )  # fmt: skip
        markers = {"PAD": PAD, "UNK": UNK, "BOS": BOS, "EOS": EOS, "ANY_BUT_END": ANY_BUT_END}
        advance[(self.slots,)](
            below_RV, self._best_RX, self._log_total_RX, self.job_id_S, self.done_S, self.position_R, self.limit_S,
            self.forced_SP, self.symbols_S2, self.missing_R, self.token_R, self.generated_RP, self.ancestor_RP,
            self.alive_R, *_parts(self.finished_XR), self.alpha_1, self.nbest_1, V, stride, X, self.positions,
            W=W, PART=_PART, W2=triton.next_power_of_2(W), C=C, C2=triton.next_power_of_2(C),
            X2=triton.next_power_of_2(X), P2=triton.next_power_of_2(self.positions), BEGIN=self.begin, num_warps=4,
            **markers, **early(hidden_RD.device),
        )  # fmt: skip


def _parts(finished_XR: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens (R, P), lengths, log-probabilities and scores (R) of finished hypotheses, which are in one tensor."""
    R, (log_prob_R, score_R) = finished_XR.shape[1], finished_XR[-2:].view(torch.float32)
    return finished_XR[:-3].view(R, -1), finished_XR[-3], log_prob_R, score_R


def hypotheses(
    finished_XR: Tensor, slots: Sequence[int], beam: int, nbest: int, begin: int = 0
) -> list[list[Hypothesis]]:
    """The best hypotheses of these slots, without their first `begin` tokens; `finished_XR` is on the CPU."""
    row_AW = np.array(slots)[:, None] * beam + np.arange(beam)
    token_RP, length_R, log_prob_R, score_R = (x.numpy() for x in _parts(finished_XR))
    order_AW = np.argsort(-score_R[row_AW], axis=1, kind="stable")[:, :nbest]
    best_AN = np.take_along_axis(row_AW, order_AW, axis=1)
    count_A = np.isfinite(score_R[best_AN]).sum(axis=1).tolist()  # -inf, where none is, is last
    best_N = best_AN.reshape(-1)
    length_N, log_prob_N, score_N = (x[best_N].tolist() for x in (length_R, log_prob_R, score_R))
    tokens_N = token_RP[best_N, : max(length_N)].tolist()
    outputs = (tokens[begin:length] for tokens, length in zip(tokens_N, length_N, strict=True))
    found = map(Hypothesis, outputs, log_prob_N, score_N)
    return [list(islice(found, best_AN.shape[1]))[:count] for count in count_A]

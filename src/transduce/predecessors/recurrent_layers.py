"""Recurrent layers on packed tokens: both directions of an encoder, and a decoder layer that attends at each step."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from transduce.nn.segments import Segments
from transduce.predecessors.additive_attention import RecurrentAttention, Scoring

Cell = Literal["gru", "lstm"]

State = tuple[Tensor, ...]
"""The state (R, D) of each row: (h,) of a GRU, (h, c) of an LSTM."""


def state_parts(cell: Cell) -> int:
    """Number of vectors in the state of a cell."""
    return 2 if cell == "lstm" else 1


class Recurrence(nn.Module):
    """A GRU or an LSTM, which reads every segment from its first token to its last."""

    def __init__(self, cell: Cell, width_in: int, width: int) -> None:
        super().__init__()
        self.rnn = (nn.LSTM if cell == "lstm" else nn.GRU)(width_in, width, batch_first=True)

    def forward(self, x_ND: Tensor, segments: Segments, state: State | None = None) -> Tensor:
        """(N, width in) to (N, width); the cells after the end of a segment are computed but never read."""
        y_BTD, _ = self.rnn(segments.layout.pad(x_ND), None if state is None else _to_torch(state))
        return segments.layout.unpad(y_BTD)

    def step(self, x_RD: Tensor, state: State) -> tuple[Tensor, State]:
        """One token per row: its output and the new state."""
        y_R1D, new = self.rnn(x_RD[:, None], _to_torch(state))
        return y_R1D[:, 0], tuple(part_1RD[0] for part_1RD in (new if isinstance(new, tuple) else (new,)))


def _to_torch(state: State) -> Tensor | tuple[Tensor, ...]:
    """The state as torch's recurrent layers take it."""
    parts = tuple(part_RD[None].contiguous() for part_RD in state)
    return parts if len(parts) == 2 else parts[0]


class BidirectionalLayer(nn.Module):
    """Two recurrences of half the width, one in each direction; their outputs are concatenated."""

    def __init__(self, cell: Cell, d_model: int) -> None:
        super().__init__()
        self.forwards = Recurrence(cell, d_model, d_model // 2)
        self.backwards = Recurrence(cell, d_model, d_model // 2)

    def forward(self, x_ND: Tensor, segments: Segments) -> Tensor:
        """(N, D) to (N, D)."""
        # Reversing each segment in place needs no lengths on the CPU, unlike torch's packed sequences.
        mirror_N = _mirror(segments)
        backwards_ND = self.backwards(x_ND.index_select(0, mirror_N), segments).index_select(0, mirror_N)
        return torch.cat([self.forwards(x_ND, segments), backwards_ND], dim=-1)


def _mirror(segments: Segments) -> Tensor:
    """The token at the mirrored position of each token's segment; it is its own inverse."""
    segment_N, offsets_B1 = segments.segment_N, segments.offsets_B1
    return (
        offsets_B1[segment_N] + offsets_B1[segment_N + 1] - 1 - torch.arange(segments.tokens, device=segment_N.device)
    )


@dataclass
class PaddedMemory:
    """The encoder's output of each sentence, padded, with the keys of the attention over it."""

    memory_BSD: Tensor
    k_BSK: Tensor
    mask_B1S: Tensor
    """True at source tokens."""

    def select(self, sentence_B: Tensor) -> "PaddedMemory":
        """The memory of these sentences."""
        parts = (self.memory_BSD, self.k_BSK, self.mask_B1S)
        return PaddedMemory(*(part.index_select(0, sentence_B) for part in parts))


class AttentiveLayer(nn.Module):
    """A recurrent layer whose input at each step is a token and what the previous state attends to.

    s_i = cell([x_i; c_i], s_(i-1)), in which c_i is the sum of the encoder's output with the weights of s_(i-1)
    (Bahdanau et al., 2014, appendix A.2.2). Each step needs the one before it, so this is a loop over steps.
    """

    def __init__(self, cell: Cell, d_model: int, scoring: Scoring) -> None:
        super().__init__()
        self.cell = (nn.LSTMCell if cell == "lstm" else nn.GRUCell)(2 * d_model, d_model)
        self.attention = RecurrentAttention(d_model, scoring)

    def memory(self, memory_ND: Tensor, segments: Segments) -> PaddedMemory:
        """The encoder's output as `step` takes it."""
        memory_BSD = segments.layout.pad(memory_ND)
        return PaddedMemory(memory_BSD, self.attention.keys(memory_BSD), segments.layout.real_BT[:, None])

    def forward(
        self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments, state: State
    ) -> tuple[Tensor, Tensor]:
        """The states and the contexts (M, D) of all tokens; `state` is the initial state of each segment."""
        states_BTD, contexts_BTD, _ = self._run(x_MD, segments, memory_ND, memory_segments, state)
        return segments.layout.unpad(states_BTD), segments.layout.unpad(contexts_BTD)

    def weights(
        self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments, state: State
    ) -> Tensor:
        """The attention weights of `forward`, as (B, 1, T, S), zero outside the segments."""
        *_, weights_BTS = self._run(x_MD, segments, memory_ND, memory_segments, state)
        return weights_BTS.masked_fill(~segments.layout.real_BT[:, :, None], 0.0)[:, None]

    def step(self, x_RD: Tensor, memory: PaddedMemory, state: State) -> tuple[Tensor, State, Tensor]:
        """One token per row: its context (R, D), the new state, and the attention weights (R, S).

        The rows of a sentence are adjacent and share its memory.
        """
        state_BWD = state[0].view(len(memory.mask_B1S), -1, state[0].shape[-1])
        weights_BWS = self.attention.align(state_BWD, memory.k_BSK, memory.mask_B1S)
        context_RD = (weights_BWS @ memory.memory_BSD).flatten(0, 1)
        new = self.cell(torch.cat([x_RD, context_RD], dim=-1), state if len(state) == 2 else state[0])
        return context_RD, new if isinstance(new, tuple) else (new,), weights_BWS.flatten(0, 1)

    def _run(
        self, x_MD: Tensor, segments: Segments, memory_ND: Tensor, memory_segments: Segments, state: State
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The states, contexts and attention weights of all steps, padded."""
        memory, steps = self.memory(memory_ND, memory_segments), []
        for x_BD in segments.layout.pad(x_MD).unbind(dim=1):
            context_BD, state, weights_BS = self.step(x_BD, memory, state)
            steps.append((state[0], context_BD, weights_BS))
        states, contexts, weights = (torch.stack(parts, dim=1) for parts in zip(*steps, strict=True))
        return states, contexts, weights

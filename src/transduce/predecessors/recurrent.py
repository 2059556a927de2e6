"""RNNsearch (Bahdanau et al., 2014): a recurrent encoder and decoder with attention, the Transformer's predecessor."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import require
from transduce.data.batch import Batch, Stream
from transduce.models.model import Model, ModelConfig
from transduce.nn.dropout import Dropout
from transduce.nn.lookup import lookup
from transduce.nn.segments import Segments
from transduce.predecessors.variants import masked_softmax

Cell = Literal["gru", "lstm"]

State = tuple[Tensor, ...]
"""The state (R, D) of each row: (h,) of a GRU, (h, c) of an LSTM."""
Scoring = Literal["additive", "dot"]


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


def additive_scores(q_BTK: Tensor, k_BSK: Tensor, v_K: Tensor) -> Tensor:
    """v · tanh(q + k) for every pair of a query and a key, as (B, T, S)."""
    return torch.tanh(q_BTK[:, :, None] + k_BSK[:, None]) @ v_K


class RecurrentAttention(nn.Module):
    """The weights with which the state of a recurrent decoder attends to the encoder's output.

    Scores are additive (Bahdanau et al., 2014) or dot products (Luong et al., 2015), with one head.
    """

    def __init__(self, d_model: int, scoring: Scoring) -> None:
        super().__init__()
        additive = scoring == "additive"
        self.key = nn.Linear(d_model, d_model, bias=additive)
        """U_a of Bahdanau, W_a of Luong's score "general"."""
        self.query = nn.Linear(d_model, d_model, bias=False) if additive else None
        """W_a of Bahdanau."""
        self.v_K = nn.Parameter(torch.randn(d_model) * d_model**-0.5) if additive else None

    def align(self, state_BTD: Tensor, k_BSK: Tensor, mask_B1S: Tensor) -> Tensor:
        """The attention weights (B, T, S) of T states per source."""
        if self.query is None or self.v_K is None:
            scores_BTS = state_BTD @ k_BSK.transpose(1, 2)
        else:
            scores_BTS = additive_scores(self.query(state_BTD), k_BSK, self.v_K)
        return masked_softmax(scores_BTS, mask_B1S)


@dataclass
class PaddedMemory:
    """The keys and values of the attention over each sentence's encoder output, padded."""

    k_BSD: Tensor
    v_BSD: Tensor
    mask_B1S: Tensor
    """True at source tokens."""

    def reorder(self, index_BW: Tensor, rows: int) -> "PaddedMemory":
        """The memory of the sentences that are left, as in `Decoder.reorder`; there were this many rows."""
        sentences = len(self.mask_B1S)
        if len(index_BW) == sentences:
            return self
        kept_B = index_BW[:, 0] // (rows // sentences)
        return PaddedMemory(*(x.index_select(0, kept_B) for x in (self.k_BSD, self.v_BSD, self.mask_B1S)))


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
        return PaddedMemory(self.attention.key(memory_BSD), memory_BSD, segments.layout.real_BT[:, None])

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
        weights_BWS = self.attention.align(state_BWD, memory.k_BSD, memory.mask_B1S)
        context_RD = (weights_BWS @ memory.v_BSD).flatten(0, 1)
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


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    """The sizes of a recurrent encoder-decoder; the defaults are close to RNNsearch's."""

    architecture: str = "recurrent"
    """Name of the architecture in the table of models (models/registry.py)."""
    d_model: int = 1024
    """Width of embeddings, of the decoder's state and of the encoder's output, half of it for each direction."""
    cell: Cell = "gru"
    """Kind of recurrent cell: gru or lstm."""
    attention: Scoring = "additive"
    """Score of a decoder state and a source token: additive (Bahdanau) or dot (Luong's "general")."""
    encoder_layers: int = 1
    """Number of bidirectional encoder layers, with residual connections between them."""
    decoder_layers: int = 1
    """Number of decoder layers; the first one attends to the source, the others have residual connections."""
    dropout: float = 0.1
    """Dropout on the embeddings, on the output of every layer and before the output projection."""

    def __post_init__(self) -> None:
        for name in ("encoder_layers", "decoder_layers", "d_model"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.d_model % 2 == 0, "d_model must be even: each direction of the encoder has half of it")
        require(0 <= self.dropout < 1, "dropout must be at least 0 and below 1")

    def min_parameters(self, vocab_size: int) -> int:
        """The elements of all matrices of recurrences and readout."""
        gates, square = 4 if self.cell == "lstm" else 3, self.d_model**2
        encoder = self.encoder_layers * gates * 3 * square // 2
        decoder = (3 + 2 * (self.decoder_layers - 1)) * gates * square
        return vocab_size * self.d_model + encoder + decoder + 3 * square

    def sizes(self) -> dict[str, Any]:
        """Dropout is not included."""
        return asdict(replace(self, dropout=0.0))


@dataclass
class RecurrentState:
    """The state of incremental decoding. The rows of a sentence are adjacent; all sentences have the same number."""

    memory: PaddedMemory
    layers: list[State]
    """One for each decoder layer."""


class RecurrentModel(Model):
    """A bidirectional encoder, and a decoder that attends to the encoder's output before each token."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        D, layers = config.d_model, config.decoder_layers
        self.embedding_VD = nn.Parameter(torch.randn(vocab_size, D) * D**-0.5)
        self.encoder = nn.ModuleList(BidirectionalLayer(config.cell, D) for _ in range(config.encoder_layers))
        self.bridge = nn.Linear(D // 2, layers * state_parts(config.cell) * D)
        """The initial states of the decoder, from the backward direction's output at the first source token."""
        self.attentive = AttentiveLayer(config.cell, D, config.attention)
        self.decoder = nn.ModuleList(Recurrence(config.cell, D, D) for _ in range(layers - 1))
        self.readout = nn.Linear(3 * D, D)
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: Batch) -> Tensor:
        """The decoder's output for the stream `tgt`, given the stream `src`."""
        src, tgt = batch["src"], batch["tgt"]
        memory_ND = self.encode(src)
        first, *others = self._initial_states(memory_ND, src)
        token_MD, segments = self._embed(tgt.ids_N), tgt.segments
        x_MD, context_MD = self.attentive(token_MD, segments, memory_ND, src.segments, first)
        for layer, state in zip(self.decoder, others, strict=True):
            x_MD = x_MD + layer(self.dropout(x_MD), segments, state)
        hidden_MD = self._read_out(x_MD, context_MD, token_MD)
        return hidden_MD if batch.positions_L is None else hidden_MD[batch.positions_L]

    def encode(self, src: Stream) -> Tensor:
        """The encoder's output (N, D)."""
        x_ND = self._embed(src.ids_N)
        for number, layer in enumerate(self.encoder):
            y_ND = self.dropout(layer(x_ND, src.segments))
            x_ND = x_ND + y_ND if number else y_ND
        return x_ND

    def start(self, src: Stream) -> RecurrentState:
        """Encode the sources; the state has one row for each."""
        memory_ND = self.encode(src)
        memory = self.attentive.memory(memory_ND, src.segments)
        return RecurrentState(memory, self._initial_states(memory_ND, src))

    def step(self, token_R: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Process one token per row; returns the logits (R, V) of the next token, and the new state."""
        token_RD = self._embed(token_R)
        context_RD, new, _ = self.attentive.step(token_RD, state.memory, state.layers[0])
        x_RD, layers = new[0], [new]
        for layer, old in zip(self.decoder, state.layers[1:], strict=True):
            assert isinstance(layer, Recurrence)
            y_RD, new = layer.step(x_RD, old)
            x_RD = x_RD + y_RD
            layers.append(new)
        logits_RV = F.linear(self._read_out(x_RD, context_RD, token_RD), self.output_weight_VD)
        return logits_RV, RecurrentState(state.memory, layers)

    def reorder(self, state: RecurrentState, index_BW: Tensor) -> RecurrentState:
        """The state whose sentence b has the old rows index_BW[b]; sentences may be removed, in order."""
        row_R = index_BW.flatten()
        layers = [tuple(part_RD.index_select(0, row_R) for part_RD in parts) for parts in state.layers]
        return RecurrentState(state.memory.reorder(index_BW, len(state.layers[0][0])), layers)

    @property
    def output_weight_VD(self) -> Tensor:
        return self.embedding_VD

    @property
    def captures(self) -> bool:
        """The loop over the decoder's steps is as long as the batch, so batches keep their own shapes."""
        return False

    @property
    def alignment_attention(self) -> AttentiveLayer:
        return self.attentive

    def _embed(self, token_N: Tensor) -> Tensor:
        return self.dropout(lookup(token_N, self.embedding_VD) * self.config.d_model**0.5)

    def _initial_states(self, memory_ND: Tensor, src: Stream) -> list[State]:
        """The state of each decoder layer before the first token, with one row per source."""
        D, parts = self.config.d_model, state_parts(self.config.cell)
        first_B = src.segments.offsets_B1[:-1].clamp(max=src.segments.tokens - 1)  # empty segments may begin at the end
        initial = torch.tanh(self.bridge(memory_ND[first_B, D // 2 :])).split(D, dim=-1)
        return [tuple(initial[n : n + parts]) for n in range(0, len(initial), parts)]

    def _read_out(self, x_MD: Tensor, context_MD: Tensor, token_MD: Tensor) -> Tensor:
        """tanh of state, context and previous token, which the output projection turns into logits."""
        return self.dropout(torch.tanh(self.readout(torch.cat([x_MD, context_MD, token_MD], dim=-1))))

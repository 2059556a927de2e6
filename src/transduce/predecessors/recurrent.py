"""RNNsearch (Bahdanau et al., 2014): a recurrent encoder and decoder with attention, the Transformer's predecessor."""

from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import require
from transduce.data.batch import Batch, Stream
from transduce.models.model import Model, ModelConfig
from transduce.nn.dropout import Dropout
from transduce.nn.lookup import lookup
from transduce.predecessors.additive_attention import Scoring
from transduce.predecessors.recurrent_layers import (
    AttentiveLayer,
    BidirectionalLayer,
    Cell,
    PaddedMemory,
    Recurrence,
    State,
    state_parts,
)


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
        """See `ModelConfig`: the elements of all matrices of recurrences and readout."""
        gates, square = 4 if self.cell == "lstm" else 3, self.d_model**2
        encoder = self.encoder_layers * gates * 3 * square // 2
        decoder = (3 + 2 * (self.decoder_layers - 1)) * gates * square
        return vocab_size * self.d_model + encoder + decoder + 3 * square

    def sizes(self) -> dict[str, Any]:
        """See `ModelConfig`; dropout is not included."""
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
        """See `Model`: the decoder's output for the stream `tgt`, given the stream `src`."""
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
            y_RD, new = cast(Recurrence, layer).step(x_RD, old)
            x_RD = x_RD + y_RD
            layers.append(new)
        logits_RV = F.linear(self._read_out(x_RD, context_RD, token_RD), self.output_weight_VD)
        return logits_RV, RecurrentState(state.memory, layers)

    def reorder(self, state: RecurrentState, index_BW: Tensor) -> RecurrentState:
        """The state whose sentence b has the old rows index_BW[b]; sentences may be removed, in order."""
        memory, row_R = state.memory, index_BW.flatten()
        sentences = len(memory.mask_B1S)
        if len(index_BW) < sentences:
            memory = memory.select(index_BW[:, 0] // (len(state.layers[0][0]) // sentences))
        layers = [tuple(part_RD.index_select(0, row_R) for part_RD in parts) for parts in state.layers]
        return RecurrentState(memory, layers)

    @property
    def output_weight_VD(self) -> Tensor:
        """See `Model`: the embedding matrix."""
        return self.embedding_VD

    @property
    def captures(self) -> bool:
        """See `Model`: the loop over the decoder's steps is as long as the batch, so batches keep their own shapes."""
        return False

    @property
    def alignment_attention(self) -> AttentiveLayer:
        """See `Model`."""
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

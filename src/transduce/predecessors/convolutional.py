"""ConvS2S (Gehring et al., 2017): a convolutional encoder and decoder with attention in every decoder layer."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import require
from transduce.data.batch import Batch, Stream
from transduce.models.model import Model, ModelConfig
from transduce.nn.dropout import Dropout
from transduce.nn.lookup import lookup
from transduce.nn.segments import Segments
from transduce.predecessors.recurrent import PaddedMemory
from transduce.predecessors.variants import masked_softmax

SCALE = math.sqrt(0.5)
"""Factor on the sum of two vectors that keeps their variance (ConvS2S, section 3.5)."""


class GatedConvolution(nn.Module):
    """A convolution of odd width to a ⊗ sigmoid(b), in which a and b are the halves of its 2 D channels.

    A causal one sees the token itself and those before it; another one sees as many on both sides. Outside of the
    segment there are zeros.
    """

    def __init__(self, d_model: int, width: int, dropout: float, *, causal: bool) -> None:
        super().__init__()
        self.first = 1 - width if causal else -(width // 2)
        """Distance from a token to the first one that it sees."""
        self.width = width
        self.taps = nn.Linear(width * d_model, 2 * d_model)
        """The kernel as one matrix: its input is the tokens that are seen, side by side."""
        # The gated linear unit and dropout change the variance; this undoes it (ConvS2S, section 3.6).
        nn.init.normal_(self.taps.weight, std=math.sqrt(4 * (1 - dropout) / (width * d_model)))
        nn.init.zeros_(self.taps.bias)

    def forward(self, x_ND: Tensor, segments: Segments) -> Tensor:
        """(N, D) to (N, D)."""
        N, last = segments.tokens, self.first + self.width - 1
        length_N = segments.lengths_B[segments.segment_N]
        # A shift of the whole stream and a mask: a padded grid is not needed.
        around_ND = F.pad(x_ND, (0, 0, -self.first, last))
        seen = []
        for tap in range(self.width):
            position_N = segments.position_N + self.first + tap
            inside_N1 = ((position_N >= 0) & (position_N < length_N))[:, None]
            seen.append(around_ND[tap : tap + N] * inside_N1)
        return F.glu(self.taps(torch.cat(seen, dim=-1)))

    def step(self, x_RD: Tensor, before_RTD: Tensor) -> tuple[Tensor, Tensor]:
        """`forward` of a causal convolution for one new token per row, and the inputs to remember for the next one."""
        seen_RTD = torch.cat([before_RTD, x_RD[:, None]], dim=1)
        return F.glu(self.taps(seen_RTD.flatten(1))), seen_RTD[:, 1:]


class ConvolutionalAttention(nn.Module):
    """The attention of one decoder layer of ConvS2S: dot products, without a scale, with one head.

    The query is the layer's state plus the target token's embedding. Keys are the encoder's output; values are the
    encoder's output plus the source token's embedding.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)
        for linear in (self.query, self.out):
            nn.init.normal_(linear.weight, std=d_model**-0.5)
            nn.init.zeros_(linear.bias)

    def forward(self, x_MD: Tensor, token_MD: Tensor, segments: Segments, memory: PaddedMemory) -> Tensor:
        """(M, D) states to (M, D)."""
        q_BTD = segments.layout.pad(self._query(x_MD, token_MD))
        return segments.layout.unpad(self._attend(q_BTD, memory))

    def weights(self, x_MD: Tensor, token_MD: Tensor, segments: Segments, memory: PaddedMemory) -> Tensor:
        """The attention weights of `forward`, as (B, 1, T, S), zero outside the segments."""
        q_BTD = segments.layout.pad(self._query(x_MD, token_MD))
        allowed_BTS = segments.layout.real_BT[:, :, None] & memory.mask_B1S
        return masked_softmax(q_BTD @ memory.k_BSD.transpose(1, 2), allowed_BTS)[:, None]

    def step(self, x_RD: Tensor, token_RD: Tensor, memory: PaddedMemory) -> Tensor:
        """`forward` for one new token per row; the rows of a sentence are adjacent."""
        q_BWD = self._query(x_RD, token_RD).view(len(memory.k_BSD), -1, memory.k_BSD.shape[-1])
        return self._attend(q_BWD, memory).flatten(0, 1)

    def _attend(self, q_BTD: Tensor, memory: PaddedMemory) -> Tensor:
        """What the queries attend to, (B, T, D); a sentence without source tokens gets the bias only."""
        mask_B1S = memory.mask_B1S
        context_BTD = F.scaled_dot_product_attention(
            q_BTD[:, None], memory.k_BSD[:, None], memory.v_BSD[:, None], attn_mask=mask_B1S[:, None], scale=1.0
        )[:, 0]
        # A mean of m vectors with equal weights has 1/m of their variance (section 3.5).
        context_BTD = context_BTD * mask_B1S.sum(dim=2, keepdim=True).to(context_BTD.dtype).sqrt()
        return self.out(context_BTD)

    def _query(self, x_MD: Tensor, token_MD: Tensor) -> Tensor:
        return (self.query(x_MD) + token_MD) * SCALE


@dataclass(frozen=True, kw_only=True)
class ConvolutionalConfig(ModelConfig):
    """The sizes of a convolutional encoder-decoder."""

    architecture: str = "convolutional"
    """Name of the architecture in the table of models (models/registry.py)."""
    encoder_layers: int = 8
    """Number of convolutions of the encoder."""
    decoder_layers: int = 8
    """Number of convolutions of the decoder, each followed by attention."""
    kernel_width: int = 3
    """k, the number of tokens that a convolution sees; odd."""
    dropout: float = 0.1
    """Dropout on the embeddings, on the input of every convolution and before the output projection."""
    max_positions: int = 1024
    """Number of learned positions."""

    def __post_init__(self) -> None:
        for name in ("encoder_layers", "decoder_layers", "d_model", "kernel_width", "max_positions"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.kernel_width % 2 == 1, "kernel_width must be odd")
        require(self.max_positions <= 2**16, "max_positions must be at most 65536")
        require(0 <= self.dropout < 1, "dropout must be at least 0 and below 1")

    def min_parameters(self, vocab_size: int) -> int:
        """The elements of all matrices and learned positions."""
        square, convolutions = self.d_model**2, self.encoder_layers + self.decoder_layers
        layers = 2 * self.kernel_width * square * convolutions + 2 * square * self.decoder_layers
        return (vocab_size + 2 * self.max_positions) * self.d_model + layers

    def sizes(self) -> dict[str, Any]:
        """Dropout is not included."""
        return asdict(replace(self, dropout=0.0))


@dataclass
class ConvolutionalState:
    """The state of incremental decoding. The rows of a sentence are adjacent; all sentences have the same number."""

    memory: PaddedMemory
    before: list[Tensor]
    """The last inputs (R, kernel_width - 1, D) of each decoder layer, zeros before the first token."""
    position: int
    """Number of tokens processed so far."""


class DecoderBlock(nn.Module):
    """A causal convolution, then attention, each with a residual connection."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.convolution = GatedConvolution(config.d_model, config.kernel_width, config.dropout, causal=True)
        self.attention = ConvolutionalAttention(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_MD: Tensor, token_MD: Tensor, segments: Segments, memory: PaddedMemory) -> Tensor:
        """(M, D) to (M, D)."""
        y_MD = self.convolution(self.dropout(x_MD), segments)
        context_MD = self.attention(y_MD, token_MD, segments, memory)
        return (x_MD + (y_MD + context_MD) * SCALE) * SCALE

    def step(self, x_RD: Tensor, token_RD: Tensor, before_RTD: Tensor, memory: PaddedMemory) -> tuple[Tensor, Tensor]:
        """`forward` for one new token per row, and the inputs to remember for the next one."""
        y_RD, before_RTD = self.convolution.step(x_RD, before_RTD)
        context_RD = self.attention.step(y_RD, token_RD, memory)
        return (x_RD + (y_RD + context_RD) * SCALE) * SCALE, before_RTD


class ConvolutionalModel(Model):
    """Convolutions with gated linear units in both stacks; positions are learned.

    It differs from the original in two points, which concern its optimizer: weights are not normalized, and the
    gradients of the encoder are not divided by the number of attention layers.
    """

    config: ConvolutionalConfig

    def __init__(self, config: ConvolutionalConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        D = config.d_model
        # Vectors are small, so that dot products without a scale are (section 3.6).
        self.embedding_VD = nn.Parameter(torch.randn(vocab_size, D) * 0.1)
        self.src_positions_TD = nn.Parameter(torch.randn(config.max_positions, D) * 0.1)
        self.tgt_positions_TD = nn.Parameter(torch.randn(config.max_positions, D) * 0.1)
        self.encoder = nn.ModuleList(
            GatedConvolution(D, config.kernel_width, config.dropout, causal=False) for _ in range(config.encoder_layers)
        )
        self.decoder = nn.ModuleList(DecoderBlock(config) for _ in range(config.decoder_layers))
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: Batch) -> Tensor:
        """The decoder's output for the stream `tgt`, given the stream `src`."""
        src, tgt = batch["src"], batch["tgt"]
        memory = self.encode(src)
        token_MD = self._embed(tgt.ids_N, tgt.segments.position_N, self.tgt_positions_TD)
        x_MD = token_MD
        for block in self.decoder:
            x_MD = block(x_MD, token_MD, tgt.segments, memory)
        hidden_MD = self.dropout(x_MD)
        return hidden_MD if batch.positions_L is None else hidden_MD[batch.positions_L]

    def encode(self, src: Stream) -> PaddedMemory:
        token_ND = self._embed(src.ids_N, src.segments.position_N, self.src_positions_TD)
        x_ND = token_ND
        for convolution in self.encoder:
            x_ND = (x_ND + convolution(self.dropout(x_ND), src.segments)) * SCALE
        layout = src.segments.layout
        return PaddedMemory(layout.pad(x_ND), layout.pad((x_ND + token_ND) * SCALE), layout.real_BT[:, None])

    def start(self, src: Stream) -> ConvolutionalState:
        """Encode the sources; the state has one row for each."""
        config, memory = self.config, self.encode(src)
        before_BTD = memory.k_BSD.new_zeros(len(memory.k_BSD), config.kernel_width - 1, config.d_model)
        return ConvolutionalState(memory, [before_BTD] * config.decoder_layers, position=0)

    def step(self, token_R: Tensor, state: ConvolutionalState) -> tuple[Tensor, ConvolutionalState]:
        """Process one token per row; returns the logits (R, V) of the next token, and the new state."""
        token_RD = self._embed(token_R, torch.full_like(token_R, state.position), self.tgt_positions_TD)
        x_RD, before = token_RD, []
        for block, before_RTD in zip(self.decoder, state.before, strict=True):
            assert isinstance(block, DecoderBlock)
            x_RD, new_RTD = block.step(x_RD, token_RD, before_RTD, state.memory)
            before.append(new_RTD)
        return F.linear(x_RD, self.output_weight_VD), replace(state, before=before, position=state.position + 1)

    def reorder(self, state: ConvolutionalState, index_BW: Tensor) -> ConvolutionalState:
        """The state whose sentence b has the old rows index_BW[b]; sentences may be removed, in order."""
        before = [before_RTD.index_select(0, index_BW.flatten()) for before_RTD in state.before]
        return replace(state, memory=state.memory.reorder(index_BW, len(state.before[0])), before=before)

    @property
    def output_weight_VD(self) -> Tensor:
        return self.embedding_VD

    @property
    def longest(self) -> int:
        """The number of learned positions, less one for the marker."""
        return self.config.max_positions - 1

    def reserve(self, length: int) -> None:
        """Learned positions cannot grow."""
        reach = self.config.max_positions
        require(
            length <= reach, f"a text of {length} tokens exceeds the {reach} learned positions (model.max_positions)"
        )

    def layers(self) -> Iterable[nn.Module]:
        return (*self.encoder, *self.decoder)

    @property
    def captures(self) -> bool:
        """The attention works on a padded grid, which is large in batches of fixed shapes."""
        return False

    @property
    def alignment_attention(self) -> ConvolutionalAttention:
        last = self.decoder[-1]
        assert isinstance(last, DecoderBlock)
        return last.attention

    def _embed(self, token_N: Tensor, position_N: Tensor, positions_TD: Tensor) -> Tensor:
        return self.dropout(lookup(token_N, self.embedding_VD) + lookup(position_N, positions_TD))

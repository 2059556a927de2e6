"""Convolutions over the tokens of packed segments, with gated linear units (Dauphin et al., 2016)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn.segments import Segments

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

    def forward(
        self,
        x_MD: Tensor,
        token_MD: Tensor,
        segments: Segments,
        keys_ND: Tensor,
        values_ND: Tensor,
        memory_segments: Segments,
    ) -> Tensor:
        """(M, D) states to (M, D)."""
        layout, memory = segments.layout, memory_segments.layout
        q_BTD, k_BSD, v_BSD = layout.pad(self._query(x_MD, token_MD)), memory.pad(keys_ND), memory.pad(values_ND)
        return layout.unpad(self.attend(q_BTD, k_BSD, v_BSD, memory.real_BT))

    def weights(
        self,
        x_MD: Tensor,
        token_MD: Tensor,
        segments: Segments,
        keys_ND: Tensor,
        values_ND: Tensor,
        memory_segments: Segments,
    ) -> Tensor:
        """The attention weights of `forward`, as (B, 1, T, S), zero outside the segments."""
        q_BTD, k_BSD = segments.layout.pad(self._query(x_MD, token_MD)), memory_segments.layout.pad(keys_ND)
        allowed_BTS = segments.layout.real_BT[:, :, None] & memory_segments.layout.real_BT[:, None]
        weights_BTS = (q_BTD @ k_BSD.transpose(1, 2)).masked_fill(~allowed_BTS, -torch.inf).softmax(dim=-1)
        return weights_BTS.masked_fill(~allowed_BTS, 0.0)[:, None]

    def step(self, x_RD: Tensor, token_RD: Tensor, k_BSD: Tensor, v_BSD: Tensor, real_BS: Tensor) -> Tensor:
        """`forward` for one new token per row; the rows of a sentence are adjacent."""
        q_BWD = self._query(x_RD, token_RD).view(len(k_BSD), -1, k_BSD.shape[-1])
        return self.attend(q_BWD, k_BSD, v_BSD, real_BS).flatten(0, 1)

    def attend(self, q_BTD: Tensor, k_BSD: Tensor, v_BSD: Tensor, real_BS: Tensor) -> Tensor:
        """What the queries attend to, (B, T, D); a sentence without source tokens gets the bias only."""
        context_BTD = F.scaled_dot_product_attention(
            q_BTD[:, None], k_BSD[:, None], v_BSD[:, None], attn_mask=real_BS[:, None, None], scale=1.0
        )[:, 0]
        # A mean of m vectors with equal weights has 1/m of their variance (section 3.5).
        context_BTD = context_BTD * real_BS.sum(dim=1).to(context_BTD.dtype).sqrt()[:, None, None]
        return self.out(context_BTD)

    def _query(self, x_MD: Tensor, token_MD: Tensor) -> Tensor:
        return (self.query(x_MD) + token_MD) * SCALE

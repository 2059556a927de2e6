"""Positional encodings: added to the embeddings (section 3.5), rotations of queries and keys, or a bias of scores."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.errors import ConfigError
from transduce.nn.kinds import PositionKind as PositionKind
from transduce.nn.lookup import lookup
from transduce.nn.rotary_rates import RotaryRates
from transduce.nn.segments import Segments


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos of the same, as (length, d_model)."""
    position_T1 = torch.arange(length, dtype=torch.float64)[:, None]
    rate = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    table_TD = torch.empty(length, d_model, dtype=torch.float64)
    table_TD[:, 0::2] = torch.sin(position_T1 * rate)
    table_TD[:, 1::2] = torch.cos(position_T1 * rate[: d_model // 2])
    return table_TD.float()


def marian_sinusoids(length: int, d_model: int) -> Tensor:
    """Marian's sinusoids: all sines before all cosines, with wavelengths from 2 pi to exactly 10000 * 2 pi."""
    half = d_model // 2
    rate = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10000.0) / max(half - 1, 1)))
    angle_TK = torch.arange(length, dtype=torch.float64)[:, None] * rate
    return torch.cat([angle_TK.sin(), angle_TK.cos()], dim=1).float()


FAIRSEQ_OFFSET = 2
"""The position that the first token has in fairseq, which counts from one after that of padding."""


def fairseq_sinusoids(length: int, d_model: int) -> Tensor:
    """The sinusoids of fairseq (M2M-100, NLLB): those of Marian from position 2 on."""
    return marian_sinusoids(length + FAIRSEQ_OFFSET, d_model)[FAIRSEQ_OFFSET:].contiguous()


_SINUSOIDS = {"sinusoidal": sinusoids, "marian": marian_sinusoids, "fairseq": fairseq_sinusoids}


class Positions(nn.Module):
    """A table of position vectors: sinusoids of the paper, Marian or fairseq, or learned ones (Table 3, row E)."""

    table_TD: Tensor

    def __init__(self, kind: PositionKind, max_positions: int, d_model: int) -> None:
        super().__init__()
        self._sinusoids = _SINUSOIDS.get(kind, sinusoids)
        if kind == "learned":
            self.table_TD = nn.Parameter(torch.randn(max_positions, d_model) * 0.02)
        else:
            self.register_buffer("table_TD", self._sinusoids(max_positions, d_model), persistent=False)

    def forward(self, position_N: Tensor) -> Tensor:
        """The vectors of these positions."""
        # The gradient of an index sums with atomics, in any order; that of `lookup` is deterministic on a CPU.
        return lookup(position_N, self.table_TD)

    def require(self, length: int) -> None:
        """Make sure that the table has this many positions: sinusoids grow, a learned table cannot."""
        reach, d_model = self.table_TD.shape
        if length <= reach:
            return
        if isinstance(self.table_TD, nn.Parameter):
            raise ConfigError(f"a text of {length} tokens exceeds the {reach} learned positions (model.max_positions)")
        self.table_TD = self._sinusoids(max(length, 2 * reach), d_model).to(self.table_TD)


class Rotary(nn.Module):
    """Rotary positions (Su et al., 2021): a query or key at position t is rotated by the angles t / base^(2i/d_k).

    Later models scale the rates (`RotaryRates`).

    The product of a rotated query and a rotated key depends only on the distance of their positions. Dimension i is
    rotated together with dimension i + d_k / 2, as in Llama.
    """

    waves_TK: Tensor
    """The cosines of all positions and angles, and after them the sines."""

    def __init__(self, max_positions: int, rates: RotaryRates) -> None:
        super().__init__()
        self._rates = rates
        self.register_buffer("waves_TK", self._waves(max_positions), persistent=False)

    def forward(self, x_NHK: Tensor, position_N: Tensor) -> Tensor:
        """Rotate queries or keys (N, H, K) at these positions."""
        cos, sin = F.embedding(position_N, self.waves_TK).to(x_NHK.dtype)[:, None].chunk(2, dim=-1)
        first, second = x_NHK.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def require(self, length: int) -> None:
        """Compute the cosines and sines of this many positions."""
        if length > len(self.waves_TK):
            self.waves_TK = self._waves(max(length, 2 * len(self.waves_TK))).to(self.waves_TK)

    def _waves(self, length: int) -> Tensor:
        rate_K = torch.tensor(self._rates.rates(), dtype=torch.float64)
        angle_TK = (torch.arange(length, dtype=torch.float64)[:, None] * rate_K).float()
        return torch.cat([angle_TK.cos(), angle_TK.sin()], dim=1)


class RelativeBias(nn.Module):
    """Relative positions of T5: a learned number for each head and distance, added to the scores of self-attention.

    Nearby distances have a bucket each, larger ones share buckets of logarithmic width, the last one all from `distant`
    on. Without `causal`, half of the buckets are for keys after the query.
    """

    def __init__(self, num_heads: int, *, causal: bool, buckets: int = 32, distant: int = 128) -> None:
        super().__init__()
        self.weight_BH = nn.Parameter(torch.randn(buckets, num_heads) * 0.02)
        self.causal, self.distant = causal, distant

    def forward(self, segments: Segments) -> Tensor:
        """The bias (1, H, T, T) of all pairs of positions of segments of up to T tokens."""
        position_T = torch.arange(segments.longest, device=self.weight_BH.device)
        return self.of_queries(position_T, segments.longest)

    def of_queries(self, position_T: Tensor, keys: int) -> Tensor:
        """The bias (1, H, T, S) of queries at these positions and the first `keys` positions."""
        distance_TS = position_T[:, None] - torch.arange(keys, device=position_T.device)
        return lookup(self._bucket(distance_TS), self.weight_BH).permute(2, 0, 1)[None]

    def _bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance, which is positive for keys before the query."""
        buckets, later = len(self.weight_BH), torch.zeros_like(distance)
        if not self.causal:
            buckets //= 2
            later = (distance < 0) * buckets
            distance = distance.abs()
        distance = distance.clamp(min=0)
        exact = buckets // 2
        logarithm = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.distant / exact)
        shared = (exact + (logarithm * (buckets - exact)).long()).clamp(max=buckets - 1)
        return later + torch.where(distance < exact, distance, shared)

"""The front end for sound (Whisper): log-mel frames, two convolutions, sinusoids. It mixes positions of a segment."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.models.config import EncoderDecoderConfig
from transduce.nn.dropout import Dropout
from transduce.nn.segments import Segments

SAMPLE_RATE = 16_000
HOP, WINDOW = 160, 400
"""Samples from one frame to the next (10 ms), and in one frame (25 ms)."""
_QUIETEST, _RANGE = 1e-10, 8.0
"""Smallest energy, and range of a sound's energies in powers of ten."""


class Frames(nn.Module):
    """Samples of 16 kHz to vectors of 20 ms each: log-mel energies, then convolutions of width 3 with GELU."""

    filters_FM: Tensor
    table_TD: Tensor

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        d_model, self.max_frames = config.d_model, config.max_frames
        self.first = nn.Linear(3 * config.mel_bins, d_model)
        self.second = nn.Linear(3 * d_model, d_model)
        self.dropout = Dropout(config.dropout)
        self.register_buffer("filters_FM", mel_filters(config.mel_bins), persistent=False)
        self.register_buffer("table_TD", side_by_side_sinusoids(self.max_frames // 2, d_model), persistent=False)

    def forward(self, sample_N: Tensor, segments: Segments) -> tuple[Tensor, Segments]:
        """Samples as 16-bit integers plus 2^15, packed, to vectors and their segments."""
        return self.convolve(*self.log_mel(sample_N, segments))

    def log_mel(self, sample_N: Tensor, segments: Segments) -> tuple[Tensor, Segments]:
        """Log-mel energies (frames, mel bins) and their segments: a frame for each complete 10 ms.

        As in Whisper, the range of a sound is limited to eight powers of ten below its loudest, and a frame reaches
        beyond the edges of a sound by reflection.
        """
        wave_N = (sample_N.float() - 2**15) / 2**15
        lengths_B = segments.lengths_B // HOP
        frames = _scaled_segments(segments, HOP, lengths_B)
        sound_M, frame_M = frames.segment_N.long(), frames.position_N.long()
        first_M, length_M = segments.offsets_B1.long()[sound_M], segments.lengths_B.long()[sound_M]
        place_MW = frame_M[:, None] * HOP + torch.arange(WINDOW, device=wave_N.device) - WINDOW // 2
        last_M1 = (length_M - 1)[:, None]
        place_MW = place_MW.abs()
        place_MW = torch.where(place_MW > last_M1, 2 * last_M1 - place_MW, place_MW).clamp(min=0)
        window_W = torch.hann_window(WINDOW, device=wave_N.device)
        energy_MF = torch.fft.rfft(wave_N[first_M[:, None] + place_MW] * window_W).abs() ** 2
        log_MB = (energy_MF @ self.filters_FM).clamp(min=_QUIETEST).log10()
        loudest_B = torch.full((len(segments),), -torch.inf, device=wave_N.device)
        loudest_B = loudest_B.scatter_reduce(0, sound_M, log_MB.amax(dim=1), "amax")
        log_MB = torch.maximum(log_MB, loudest_B[sound_M][:, None] - _RANGE)
        return (log_MB + 4) / 4, frames

    def convolve(self, mel_MB: Tensor, frames: Segments) -> tuple[Tensor, Segments]:
        """Log-mel energies to vectors, half as many: the second convolution takes every other frame."""
        dtype = self.first.weight.dtype
        x_MD = F.gelu(self.first(_neighbours(mel_MB.to(dtype), frames)))
        halves = _scaled_segments(frames, 2, (frames.lengths_B + 1) // 2)
        even_N = frames.offsets_B1.long()[halves.segment_N.long()] + 2 * halves.position_N.long()
        x_ND = F.gelu(self.second(_neighbours(x_MD, frames)[even_N]))
        x_ND = self.dropout(x_ND + F.embedding(halves.position_N, self.table_TD).to(dtype))
        return x_ND, halves


def _scaled_segments(segments: Segments, factor: int, lengths_B: Tensor) -> Segments:
    """Segments of these lengths."""
    offsets_B1 = F.pad(lengths_B.cumsum(0), (1, 0)).to(torch.int32)
    return Segments(offsets_B1, -(-segments.longest // factor), int(offsets_B1[-1]))


def _neighbours(x_MD: Tensor, segments: Segments) -> Tensor:
    """Each vector between those before and after it (M, 3 D), zeros beyond the edges of a segment."""
    position_M, length_M = segments.position_N, segments.lengths_B[segments.segment_N.long()]
    before_MD = x_MD.roll(1, 0).masked_fill((position_M == 0)[:, None], 0)
    after_MD = x_MD.roll(-1, 0).masked_fill((position_M == length_M - 1)[:, None], 0)
    return torch.cat([before_MD, x_MD, after_MD], dim=1)


def side_by_side_sinusoids(length: int, d_model: int) -> Tensor:
    """Sinusoids with all sines before all cosines, and wavelengths from 2π to 10,000 · 2π, as in Whisper."""
    half = d_model // 2
    rate = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10_000.0) / max(half - 1, 1)))
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


def mel_filters(bins: int) -> Tensor:
    """Triangular filters (frequencies, bins) on Slaney's mel scale, each with the same area."""
    frequency_F = torch.linspace(0, SAMPLE_RATE / 2, WINDOW // 2 + 1, dtype=torch.float64)
    edges = _hertz(torch.linspace(0, _mel(SAMPLE_RATE / 2), bins + 2, dtype=torch.float64))
    width = edges.diff()
    slope = frequency_F[:, None] - edges
    rising, falling = slope[:, :-2] / width[:-1], -slope[:, 2:] / width[1:]
    filters = torch.minimum(rising, falling).clamp(min=0)
    return (filters * 2 / (edges[2:] - edges[:-2])).float()


def _mel(hertz: float) -> float:
    """Linear below 1,000 Hz, logarithmic above."""
    return hertz * 3 / 200 if hertz < 1000 else 15 + math.log(hertz / 1000) * 27 / math.log(6.4)


def _hertz(mel: Tensor) -> Tensor:
    return torch.where(mel < 15, mel * 200 / 3, 1000 * torch.exp((mel - 15) * math.log(6.4) / 27))

"""Sound: files as samples (one channel, 16 kHz, 16-bit integers plus 2^15), recordings with their texts, front end.

The front end is Whisper's: log-mel frames, two convolutions, sinusoids. It mixes positions of a segment.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.errors import DataError
from transduce.files.files import raw_lines
from transduce.files.pair_formats import TSV, UnusableError, format_suffix, parse_row
from transduce.files.pairs import Corpus, ReadReport, require_usable
from transduce.files.readers import Reader, single_file
from transduce.models.config import EncoderDecoderConfig
from transduce.nn.dropout import Dropout
from transduce.nn.positions import marian_sinusoids
from transduce.nn.segments import Segments

RATE = 16_000
"""Samples per second of everything that models read."""
SILENCE = 2**15
"""The sample 0, in the form that models read."""

_RATES = (1_000, 768_000)
_BLOCK = 1 << 20
_MAX_SAMPLES = 1 << 29
"""Limit for the samples of a file: 9 hours at 16 kHz."""
_ZERO_CROSSINGS, _KAISER, _CUTOFF = 24, 9.0, 0.96
"""The low-pass filter: zero crossings on each side, shape of the window, share of the Nyquist frequency."""

Samples = npt.NDArray[np.int64]
Wave = npt.NDArray[np.float32]
SECONDS = 30
"""Length of the longest recording that is read."""
UNREADABLE, TOO_LONG, TOO_SHORT = "whose sound cannot be read", "longer than 30 seconds", "shorter than 50 ms"
HOP, WINDOW = 160, 400
"""Samples from one frame to the next (10 ms), and in one frame (25 ms)."""
_QUIETEST, _RANGE = 1e-10, 8.0
"""Smallest energy, and range of a sound's energies in powers of ten."""


def read_sound(path: Path) -> Samples:
    """Read a file (wav, flac and other formats of libsndfile); channels are averaged."""
    try:
        import soundfile
    except ImportError:
        raise DataError("sound files need the package soundfile: pip install 'transduce[import]'") from None
    if not path.is_file():
        raise DataError(f"{path}: {'not a plain file' if path.exists() else 'no such file'}")
    try:
        with soundfile.SoundFile(path) as file:
            rate = int(file.samplerate)
            if not _RATES[0] <= rate <= _RATES[1]:
                raise DataError(f"{path}: {rate} samples per second cannot be read; use {_RATES[0]:,} to {_RATES[1]:,}")
            blocks: list[Wave] = []
            for block in file.blocks(max(1, _BLOCK // file.channels), dtype="float32", always_2d=True):
                blocks.append(block.mean(axis=1))
                if sum(map(len, blocks)) > _MAX_SAMPLES:  # a small file may be very long, such as one of silence
                    raise DataError(f"{path}: longer than the {_MAX_SAMPLES:,} samples that are read; split the file")
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{path}: not a sound file that can be read: {error}") from None
    wave_N = np.concatenate(blocks) if blocks else np.zeros(0, np.float32)
    if not np.isfinite(wave_N).all():
        raise DataError(f"{path}: some of its samples are not finite numbers")
    return to_samples(resample(wave_N, rate))


def require_samples(samples_N: object) -> None:
    """Raise a DataError unless these are samples as `read_sound` and `to_samples` give them."""
    if (
        not isinstance(samples_N, np.ndarray)
        or samples_N.ndim != 1
        or not (np.issubdtype(samples_N.dtype, np.integer) and np.can_cast(np.uint16, samples_N.dtype))
        or (len(samples_N) and not 0 <= samples_N.min() <= samples_N.max() < 2 * SILENCE)
    ):
        raise DataError(
            "samples must be the array that read_sound(path) returns, or to_samples of numbers between -1 and 1 at "
            f"{RATE:,} Hz (transduce.speech.sound)"
        )


def to_samples(wave_N: Wave) -> Samples:
    """Numbers between -1 and 1 as the integers that models read."""
    return np.clip(np.round(wave_N * 2**15), -(2**15), 2**15 - 1).astype(np.int64) + SILENCE


def resample(wave_N: Wave, rate: int, to: int = RATE) -> Wave:
    """The same sound with another number of samples per second, by a windowed sinc filter (linear phase)."""
    if rate == to or not len(wave_N):
        return wave_N
    up, down = to // math.gcd(rate, to), rate // math.gcd(rate, to)
    # Sample n of the result is at n * down / up of the original. Its fraction, and so the filter, recurs after `up`.
    place_P = np.arange(up) * down
    cutoff = _CUTOFF * min(1.0, to / rate)
    half = math.ceil(_ZERO_CROSSINGS / cutoff)
    distance_PT = np.arange(1 - half, half + 1) - (place_P % up / up)[:, None]
    window_PT = np.i0(_KAISER * np.sqrt(np.clip(1 - (distance_PT / half) ** 2, 0, None)))
    filter_PT = np.sinc(cutoff * distance_PT) * window_PT
    filter_PT = (filter_PT / filter_PT.sum(axis=1, keepdims=True)).astype(np.float32)
    count = len(wave_N) * to // rate
    padded = np.pad(wave_N, (half - 1, half + down + 1))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half)
    result = np.empty(count, np.float32)
    step = max(1, _BLOCK // (2 * half))
    for start in range(0, count, step):
        n = np.arange(start, min(start + step, count))
        result[n] = np.einsum("nt,nt->n", windows[n * down // up], filter_PT[n % up])
    return result


def split_sound(samples_N: Samples, seconds: int) -> list[tuple[int, int]]:
    """The ranges of samples that are read at once: at most `seconds` long, cut where it is quietest near the end."""
    longest, tail, quiet = seconds * RATE, seconds * RATE // 6, RATE // 5
    ranges, start = [], 0
    while len(samples_N) - start > longest:
        late = np.abs(samples_N[start + longest - tail : start + longest] - SILENCE)
        loudness = np.convolve(late, np.ones(quiet), mode="valid")
        end = start + longest - tail + int(loudness.argmin()) + quiet // 2
        ranges.append((start, end))
        start = end
    if start < len(samples_N):
        ranges.append((start, len(samples_N)))
    return ranges


def read_speech(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[Samples, str]]:
    """Yield the samples of recordings and their texts; an unusable line is left out and counted.

    A .tsv file has the name of a sound file, tab, and the text on each line; names are relative to the .tsv file.
    `reverse` has no meaning for them.
    """
    report.noun = "recording"
    for files in corpus:
        path = Path(single_file(files))
        if format_suffix(path) not in TSV.suffixes:
            raise DataError(f"{path}: recordings are named in a .tsv file (sound file, tab, text)")
        for number, raw in enumerate(raw_lines(path), start=1):
            try:
                name, text = parse_row(raw)
                samples = _samples(path.parent / name)
            except UnusableError as problem:
                report.note(str(problem), files[0], number)
            else:
                report.pairs += 1
                yield samples, text
    require_usable(corpus, report, "recording")


def sound_files(path: Path) -> Iterator[Path]:
    """The sound files that a file of recordings names and that exist."""
    for raw in raw_lines(path) if format_suffix(path) in TSV.suffixes else ():
        with suppress(UnusableError):
            sound = path.parent / parse_row(raw)[0]
            if sound.is_file():
                yield sound


def _samples(path: Path) -> Samples:
    try:
        samples = read_sound(path)
    except DataError as error:
        if "pip install" in str(error):
            raise
        raise UnusableError(UNREADABLE) from None
    if len(samples) > SECONDS * RATE:
        raise UnusableError(TOO_LONG)
    if len(samples) < RATE // 20:
        raise UnusableError(TOO_SHORT)
    return samples


SPEECH = Reader(("src", "tgt"), read_speech, arrays=True, named_files=sound_files)


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
        self.register_buffer("table_TD", marian_sinusoids(self.max_frames // 2, d_model), persistent=False)

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
    """Segments of these lengths, of which none is longer than the longest divided by the factor."""
    offsets_B1 = F.pad(lengths_B.cumsum(0), (1, 0)).to(torch.int32)
    return Segments(offsets_B1, -(-segments.longest // factor), int(offsets_B1[-1]))


def _neighbours(x_MD: Tensor, segments: Segments) -> Tensor:
    """Each vector between those before and after it (M, 3 D), zeros beyond the edges of a segment."""
    position_M, length_M = segments.position_N, segments.lengths_B[segments.segment_N.long()]
    before_MD = x_MD.roll(1, 0).masked_fill((position_M == 0)[:, None], 0)
    after_MD = x_MD.roll(-1, 0).masked_fill((position_M == length_M - 1)[:, None], 0)
    return torch.cat([before_MD, x_MD, after_MD], dim=1)


def mel_filters(bins: int) -> Tensor:
    """Triangular filters (frequencies, bins) on Slaney's mel scale, each with the same area."""
    frequency_F = torch.linspace(0, RATE / 2, WINDOW // 2 + 1, dtype=torch.float64)
    edges = _hertz(torch.linspace(0, _mel(RATE / 2), bins + 2, dtype=torch.float64))
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

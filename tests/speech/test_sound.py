"""Reading, resampling and splitting sound."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transduce.errors import DataError
from transduce.speech.sound import RATE, SILENCE, read_sound, resample, split_sound, to_samples

soundfile: Any = pytest.importorskip("soundfile")


def sine(hertz: float, rate: int, seconds: float = 0.5) -> Any:
    return np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate).astype(np.float32)


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000])
@pytest.mark.parametrize("hertz", [100.0, 997.0, 3_000.0])
def test_a_sine_stays_a_sine(rate: int, hertz: float) -> None:
    result = resample(sine(hertz, rate), rate)
    expected = sine(hertz, RATE)
    assert abs(len(result) - len(expected)) <= 1
    inner = slice(200, len(expected) - 200)  # beyond the edges there is silence
    np.testing.assert_allclose(result[inner], expected[inner], atol=1e-4)


def test_frequencies_that_do_not_fit_are_removed() -> None:
    assert np.abs(resample(sine(12_000, 48_000), 48_000)[200:-200]).max() < 1e-4


def test_the_same_rate_changes_nothing() -> None:
    wave = sine(440, RATE)
    assert resample(wave, RATE) is wave
    assert len(resample(np.zeros(0, np.float32), 44_100)) == 0


@pytest.mark.parametrize("suffix", ["wav", "flac"])
def test_channels_are_averaged(suffix: str, tmp_path: Path) -> None:
    left, right = sine(200, RATE) * 0.5, sine(300, RATE) * 0.25
    soundfile.write(tmp_path / f"a.{suffix}", np.stack([left, right], axis=1), RATE)
    samples = read_sound(tmp_path / f"a.{suffix}")
    assert np.abs(samples - to_samples((left + right) / 2)).max() <= 1


def test_samples_are_limited() -> None:
    assert to_samples(np.array([-2.0, -1.0, 0.0, 1.0], np.float32)).tolist() == [0, 0, SILENCE, 2**16 - 1]


def test_a_long_sound_is_cut_where_it_is_quiet() -> None:
    loud = np.random.default_rng(0).integers(-5000, 5000, 70 * RATE) + SILENCE
    loud[27 * RATE : 27 * RATE + RATE // 2] = SILENCE
    ranges = split_sound(loud, 30)
    assert [ranges[0][0], ranges[-1][1]] == [0, len(loud)]
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert all(0 < end - start <= 30 * RATE for start, end in ranges)
    assert 27 <= ranges[0][1] / RATE <= 27.5
    assert split_sound(loud[: 30 * RATE], 30) == [(0, 30 * RATE)]
    assert split_sound(loud[:0], 30) == []


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_sound(tmp_path / "a.wav")
    (tmp_path / "a.wav").write_text("text")
    with pytest.raises(DataError, match=r"a\.wav: not a sound file that can be read"):
        read_sound(tmp_path / "a.wav")
    with pytest.raises(DataError, match="not a plain file"):
        read_sound(tmp_path)
    soundfile.write(tmp_path / "nan.wav", np.array([0.5, np.nan], np.float32), RATE, subtype="FLOAT")
    with pytest.raises(DataError, match=r"nan\.wav: some of its samples are not finite numbers"):
        read_sound(tmp_path / "nan.wav")
    soundfile.write(tmp_path / "slow.wav", sine(100, 500), 500)
    with pytest.raises(DataError, match="500 samples per second"):
        read_sound(tmp_path / "slow.wav")

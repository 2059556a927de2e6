"""Damaged and hostile images and sounds: each is read, or refused with a DataError of one line."""

# ruff: noqa: PT017  (an error is one of the valid results, and its message is checked)

import gzip
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_injection import repetitions

from transduce.classification import labelled as images
from transduce.classification.labelled import load_image, read_idx, read_npz
from transduce.errors import DataError
from transduce.speech import sound
from transduce.speech.sound import read_sound

EACH = repetitions(25, 2000)
PIXELS = np.random.default_rng(1).integers(0, 255, (16, 12, 3)).astype(np.uint8)


def image(kind: str) -> bytes:
    file = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray(PIXELS).save(file, kind)
    return file.getvalue()


def recording(kind: str, samples: Any) -> bytes:
    file = io.BytesIO()
    pytest.importorskip("soundfile").write(file, samples, 8000, format=kind)
    return file.getvalue()


def idx(*shape: int, values: int) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in shape)
    return b"\0\0\x08" + bytes([len(shape)]) + sizes + bytes(values)


def npz(save: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    save(file, images=PIXELS[None], labels=np.array([1]))
    return file.getvalue()


TONE = np.sin(np.arange(3000) / 9)
FILES: dict[str, tuple[Callable[[], bytes], Callable[[Path], Any]]] = {
    "a.png": (lambda: image("png"), load_image),
    "a.jpg": (lambda: image("jpeg"), load_image),
    "a.gif": (lambda: image("gif"), load_image),
    "a.webp": (lambda: image("webp"), load_image),
    "a.idx": (lambda: idx(5, 4, 4, values=80), read_idx),
    "a.gz": (lambda: gzip.compress(idx(5, 4, 4, values=80)), read_idx),
    "a.npz": (lambda: npz(np.savez), read_npz),
    "b.npz": (lambda: npz(np.savez_compressed), read_npz),
    "a.wav": (lambda: recording("wav", TONE), read_sound),
    "a.flac": (lambda: recording("flac", TONE), read_sound),
    "a.ogg": (lambda: recording("ogg", TONE), read_sound),
}


def mutated(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        start = draw.randrange(min(len(changed), draw.choice([60, len(changed)])))
        new = draw.choice([draw.randbytes(1), b"\xff" * 4, bytes(4)])
        changed[start : start + draw.choice([0, 1, 1, 4])] = new
    return bytes(changed[: draw.randrange(len(changed) + 1)] if draw.random() < 0.3 else changed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_read_or_refused(name: str, tmp_path: Path) -> None:
    make, read = FILES[name]
    content, path = make(), tmp_path / name
    path.write_bytes(content)
    read(path)
    for number in range(EACH):
        path.write_bytes(mutated(content, random.Random(f"{name} {number}")))
        try:
            read(path)
        except DataError as error:
            assert str(error).startswith(f"{path}: ")
            assert "\n" not in str(error)


@pytest.mark.parametrize("read", [load_image, read_idx, read_npz, read_sound])
def test_what_is_no_plain_file_is_refused(read: Callable[[Path], Any], tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("soundfile")
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(DataError, match="not a plain file"):
            read(path)
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "missing")


def test_small_files_of_huge_content_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(idx(2**31, 2**31, values=0)))
    with pytest.raises(DataError, match=r"4,611,686,018,427,387,904 values are more than"):
        read_idx(path)
    path.write_bytes(gzip.compress(idx(2, 2, values=9)))
    with pytest.raises(DataError, match="it has more values, but its header says 4"):
        read_idx(path)
    monkeypatch.setattr(images, "_MAX_BYTES", 500)
    (tmp_path / "a.npz").write_bytes(npz(np.savez_compressed))
    with pytest.raises(DataError, match="bytes are more than the 500"):
        read_npz(tmp_path / "a.npz")
    monkeypatch.setattr(sound, "_MAX_SAMPLES", 5000)
    (tmp_path / "a.flac").write_bytes(recording("flac", np.zeros(6000)))
    with pytest.raises(DataError, match="longer than the 5,000 samples"):
        read_sound(tmp_path / "a.flac")

"""Image files: bits, channels and folders of classes."""

from pathlib import Path

import numpy as np
import pytest

from transduce.classification.labelled import folder_images, load_image
from transduce.errors import DataError

pillow = pytest.importorskip("PIL.Image")

RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)


@pytest.mark.parametrize("suffix", ["png", "tif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bits_are_scaled_to_8(tmp_path: Path, suffix: str, channels: int) -> None:
    path = tmp_path / f"ramp.{suffix}"
    pillow.fromarray(RAMP.astype(np.uint16) * 257).save(path)
    assert load_image(path).tolist() == RAMP[..., None].tolist()
    assert load_image(path, channels).tolist() == np.repeat(RAMP[..., None], channels, axis=2).tolist()


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_pixels_without_a_known_range_are_refused(tmp_path: Path, kind: type) -> None:
    pillow.fromarray(RAMP.astype(kind)).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=r"a\.tif: pixels of 32 bits, whose range is not known"):
        load_image(tmp_path / "a.tif")


def write_classes(folder: Path, images: dict[str, np.ndarray]) -> None:
    for name, image in images.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pillow.fromarray(image).save(folder / name)


def test_images_of_a_folder_are_in_colour_if_one_is(tmp_path: Path) -> None:
    colour = np.stack([RAMP, RAMP // 2, RAMP // 4], axis=-1)
    write_classes(tmp_path, {"a/1.png": RAMP, "b/2.png": colour})
    (grey, *_), (coloured, *_) = folder_images(tmp_path)
    assert grey.tolist() == np.repeat(RAMP[..., None], 3, axis=2).tolist()
    assert coloured.tolist() == colour.tolist()


def test_a_class_without_images_is_refused(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a/1.png": RAMP})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("nothing to see")
    with pytest.raises(DataError, match=r"b: the class has no image \(\.png, "):
        list(folder_images(tmp_path))

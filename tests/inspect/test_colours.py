"""The colours of heads are distinguishable and visible for every kind of colour vision."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

SOURCE = (Path(__file__).parents[2] / "web/src/colours.js").read_text(encoding="utf-8")
# Linear RGB as seen without one kind of cone (Machado, Oliveira and Fernandes, 2009).
VISION = {
    "normal": np.eye(3),
    "no red": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "no green": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
    "no blue": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
BACKGROUND = {"light": "#fffefb", "dark": "#181c25"}


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def cielab(rgb: np.ndarray) -> np.ndarray:
    x, y, z = np.cbrt(TO_XYZ @ rgb.clip(0.01, 1) / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def head_colours(theme: str) -> list[str]:
    row = re.search(rf"{theme}: \[([^\]]+)\]", SOURCE)
    assert row
    return re.findall(r"#[0-9a-f]{6}", row[1])


@pytest.mark.parametrize("theme", BACKGROUND)
@pytest.mark.parametrize("vision", VISION)
def test_the_colours_of_heads_are_distinct(theme: str, vision: str) -> None:
    seen = [cielab(VISION[vision] @ linear(colour)) for colour in head_colours(theme)]
    assert len(seen) == 8
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 15  # a difference of 2 is just noticeable


@pytest.mark.parametrize("theme", BACKGROUND)
def test_the_colours_of_heads_contrast_with_the_background(theme: str) -> None:
    luminance = {colour: (TO_XYZ @ linear(colour))[1] + 0.05 for colour in [BACKGROUND[theme], *head_colours(theme)]}
    for colour in head_colours(theme):
        low, high = sorted((luminance[colour], luminance[BACKGROUND[theme]]))
        assert high / low >= 3  # required by WCAG for graphics

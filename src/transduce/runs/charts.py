"""SVG charts for the report, generated here so that the report is one file and needs no library."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

_WIDTH, _HEIGHT = 460, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 14, 26


@dataclass(frozen=True)
class Series:
    """One line of a chart; `style` is its class in the report's style sheet."""

    name: str
    points: Sequence[Point]
    style: str


def line_chart(title: str, series: Sequence[Series], number: Callable[[float], str] = "{:g}".format) -> str:
    """A titled chart of values over steps; an empty string if there are no values."""
    series = [one for one in series if one.points]
    if not series:
        return ""
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    x_ticks, y_ticks = _ticks(0, max(xs)), _ticks(min(0, *ys), max(ys))
    x_span, y_low, y_span = max(xs) or 1, y_ticks[0], (y_ticks[-1] - y_ticks[0]) or 1

    def place(x: float, y: float) -> Point:
        across = _LEFT + (_WIDTH - _LEFT - _RIGHT) * x / x_span
        down = _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (y - y_low) / y_span
        return round(across, 1), round(down, 1)

    parts = []
    for tick in y_ticks:
        _, y = place(0, tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{number(tick)}</text>')
    for tick in x_ticks:
        x, _ = place(tick, y_low)
        if tick <= x_span:
            parts.append(f'<text class="tick" x="{x}" y="{_HEIGHT - 8}" text-anchor="middle">{_steps(tick)}</text>')
    for one in series:
        path = " ".join("{},{}".format(*place(x, y)) for x, y in one.points)
        parts.append(f'<polyline class="{one.style}" points="{path}"/>')
        for x, y in one.points if len(one.points) <= 60 else one.points[-1:]:
            across, down = place(x, y)
            tip = f"<title>{escape(one.name)} at step {x:,.0f}: {number(y)}</title>"
            parts.append(f'<circle class="{one.style}" cx="{across}" cy="{down}" r="2.6">{tip}</circle>')
    legend = " ".join(f'<span class="key {one.style}">{escape(one.name)}</span>' for one in series)
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    return f"<figure><figcaption><b>{escape(title)}</b> {legend}</figcaption>{svg}</figure>"


def heat_map(columns: Sequence[str], rows: Sequence[str], weights: Sequence[Sequence[float]]) -> str:
    """A grid of weights between 0 and 1, rows labelled at the left and columns on top."""
    cell, left, top = 22, 8 * max(map(len, rows)) + 14, 7 * max(map(len, columns)) + 10
    parts = []
    for c, label in enumerate(columns):
        x = left + c * cell + cell / 2
        parts.append(f'<text class="tick" transform="translate({x + 3},{top - 5}) rotate(-60)">{escape(label)}</text>')
    for r, label in enumerate(rows):
        y = top + r * cell
        parts.append(f'<text class="tick" x="{left - 6}" y="{y + 15}" text-anchor="end">{escape(label)}</text>')
        for c, weight in enumerate(weights[r]):
            tip = f"{escape(label)} → {escape(columns[c])}: {weight:.2f}"
            parts.append(
                f'<rect class="cell" x="{left + c * cell}" y="{y}" width="{cell - 1}" height="{cell - 1}" '
                f'fill-opacity="{max(weight, 0.02):.3f}"><title>{tip}</title></rect>'
            )
    width, height = left + len(columns) * cell + 60, top + len(rows) * cell + 6
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg class="heat" {size} role="img">{"".join(parts)}</svg>'


def _ticks(low: float, high: float) -> list[float]:
    """About four round numbers that span the range."""
    if high <= low:
        high = low + (abs(low) or 1)
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _steps(step: float) -> str:
    return f"{step / 1000:g}k" if step >= 1000 else f"{step:g}"

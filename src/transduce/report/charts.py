"""SVG charts for the report, generated here so that the report is one file and needs neither library nor script."""

import math
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

Point = tuple[float, float]
Number = Callable[[float], str]
"""How a value is written."""

_WIDTH, _HEIGHT = 380, 200
_RIGHT, _TOP, _BOTTOM = 12, 26, 26
_CHARACTER = 6.7
"""Width of a character of a label."""
_COLUMNS = 120
"""Number of places at which the crosshair shows values."""


@dataclass(frozen=True)
class Series:
    """One line of a chart; `style` is its class in the style sheet, a letter for the colour."""

    name: str
    points: Sequence[Point]
    style: str


def line_chart(
    title: str,
    series: Sequence[Series],
    number: Number = "{:.4g}".format,
    *,
    log: bool = False,
    best: float | None = None,
    unit: str = "step",
    log_log: bool = False,
) -> str:
    """A titled chart of values over steps, or another unit, with a crosshair; an empty string if there are no values.

    `log` adds a switch to a logarithmic axis, if all values are positive. `best` is the step of the best checkpoint.
    With `log_log`, both axes are logarithmic, and all numbers are positive.
    """
    series = [curve for curve in series if curve.points]
    if not series:
        return ""
    legend = " ".join(f'<span class="key {curve.style}">{escape(curve.name)}</span>' for curve in series)
    drawings = [_Drawing(series, number, best, unit, "log-log" if log_log else "linear").svg(title)]
    switch = ""
    if log and min(y for curve in series for _, y in curve.points) > 0:
        drawings.append(_Drawing(series, number, best, unit, "logarithmic").svg(f"{title}, logarithmic"))
        name = f"log-{zlib.crc32(title.encode()):x}"
        switch = f'<input class="log" type="checkbox" id="{name}"><label class="log" for="{name}">log scale</label>'
    return f"<figure>{switch}<figcaption><b>{escape(title)}</b> {legend}</figcaption>{''.join(drawings)}</figure>"


class _Drawing:
    """One version of a chart."""

    def __init__(self, series: Sequence[Series], number: Number, best: float | None, unit: str, kind: str) -> None:
        self._series, self._number, self._best, self._unit, self._kind = series, number, best, unit, kind
        ys = [y for curve in series for _, y in curve.points]
        self._is_log = kind != "linear"
        self._y_ticks = _log_ticks(min(ys), max(ys)) if self._is_log else _ticks(min(0, *ys), max(ys))
        xs = sorted({x for curve in series for x, _ in curve.points})
        self._x_span = xs[-1] or 1
        self._x_ticks = xs[:: -(-len(xs) // 6)] if kind == "log-log" else _ticks(0, self._x_span)
        self._left = 12 + _CHARACTER * max(len(_tick_label(tick)) for tick in self._y_ticks)

    def svg(self, name: str) -> str:
        parts = "".join([*self._grid(), *self._lines(), *self._crosshair()])
        box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        return f'<svg class="{self._kind}" {box} role="img" aria-label="{escape(name)}">{parts}</svg>'

    def _x(self, x: float) -> float:
        share = x / self._x_span
        if self._kind == "log-log":
            share = math.log(x / self._x_ticks[0]) / (math.log(self._x_span / self._x_ticks[0]) or 1)
        return round(self._left + (_WIDTH - self._left - _RIGHT) * share, 1)

    def _y(self, y: float) -> float:
        low, high = self._y_ticks[0], self._y_ticks[-1]
        if self._is_log:
            low, high, y = math.log(low), math.log(high), math.log(y)
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (y - low) / ((high - low) or 1), 1)

    def _grid(self) -> Iterator[str]:
        for tick in self._y_ticks:
            y = self._y(tick)
            yield f'<line class="grid" x1="{self._left}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
            yield f'<text class="tick" x="{self._left - 6}" y="{y + 4}" text-anchor="end">{_tick_label(tick)}</text>'
        for tick in self._x_ticks:
            if tick <= self._x_span:
                x, label = self._x(tick), f"{tick:g}" if self._kind == "log-log" else step_label(tick)
                # A label that is centred at the right edge would be cut off.
                anchor = "end" if x + _CHARACTER * len(label) / 2 > _WIDTH else "middle"
                x = min(x, _WIDTH - 2) if anchor == "end" else x
                yield f'<text class="tick" x="{x}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{label}</text>'
        if self._best is not None and self._best <= self._x_span:
            x = self._x(self._best)
            tip = f"<title>best checkpoint, step {self._best:,.0f}</title>"
            yield f'<line class="best" x1="{x}" x2="{x}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}">{tip}</line>'

    def _lines(self) -> Iterator[str]:
        for curve in self._series:
            path = " ".join(f"{self._x(x)},{self._y(y)}" for x, y in curve.points)
            yield f'<polyline class="{curve.style}" points="{path}"/>'
            for x, y in curve.points if len(curve.points) <= 60 else curve.points[-1:]:
                yield f'<circle class="{curve.style}" cx="{self._x(x)}" cy="{self._y(y)}" r="2"/>'

    def _crosshair(self) -> Iterator[str]:
        """Columns that show the last values at their step while the pointer is on them; no script is needed."""
        steps = sorted({x for curve in self._series for x, _ in curve.points})
        steps = steps[:: -(-len(steps) // _COLUMNS)]
        edges = [self._left, *((self._x(a) + self._x(b)) / 2 for a, b in pairwise(steps)), float(_WIDTH)]
        xs = [[x for x, _ in curve.points] for curve in self._series]
        for step, start, end in zip(steps, edges, edges[1:], strict=False):
            values = [f"step {step:,.0f}" if self._unit == "step" else f"{step:,.4g} {self._unit}"]
            for curve, steps_of_curve in zip(self._series, xs, strict=True):
                if index := bisect_right(steps_of_curve, step):
                    values.append(f"{curve.name} {with_minus(self._number(curve.points[index - 1][1]))}")
            x = self._x(step)
            label = escape("  ".join(values))
            anchor, at = ("start", self._left) if x < _WIDTH / 2 else ("end", _WIDTH - 2)
            yield (
                f'<g class="at"><rect class="hit" x="{start:.1f}" y="0" width="{max(0, end - start):.1f}" '
                f'height="{_HEIGHT}"/><line x1="{x}" x2="{x}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>'
                f'<text x="{at}" y="13" text-anchor="{anchor}">{label}</text></g>'
            )


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


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 between them if the range is short, that span the range."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    below, above = [tick for tick in ticks if tick <= low], [tick for tick in ticks if tick >= high]
    start, end = below[-1] if below else ticks[0], above[0] if above else ticks[-1]
    return [tick for tick in ticks if start <= tick <= end] if end > start else [start, start * 10]


def _ticks(low: float, high: float) -> list[float]:
    """About four round numbers that span the range."""
    if high <= low:
        high = low + (abs(low) or 1)
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(n * step, 12) for n in range(first, last + 1)]


def with_minus(number: str) -> str:
    """A number with the sign of a minus instead of a hyphen."""
    return number.replace("-", "−")


def _tick_label(tick: float) -> str:
    return with_minus(f"{tick:,.0f}" if abs(tick) >= 1000 else f"{tick:.4g}")


def step_label(step: float) -> str:
    return f"{step / 1000:g}k" if step >= 1000 else f"{step:g}"

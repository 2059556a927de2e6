"""Charts with logarithmic axes, as SVG."""

import math
from html import escape

from transduce.paper.section import Chart

_WIDTH, _HEIGHT = 460, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 10, 40


def log_chart(chart: Chart) -> str:
    """Lines through positive points on two logarithmic axes, with a legend."""
    points = [point for line in chart.lines.values() for point in line if min(point) > 0]
    if not points:
        return ""
    (x_low, x_high), (y_low, y_high) = (_range([point[axis] for point in points]) for axis in (0, 1))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_low) / (x_high - x_low)
        up = (math.log10(y) - y_low) / (y_high - y_low)
        return (
            round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * across, 1),
            round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * up, 1),
        )

    parts = []
    for power in range(math.ceil(y_low), math.floor(y_high) + 1):
        _, y = place(10**x_low, 10.0**power)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{_power(power)}</text>')
    xs = sorted({point[0] for point in points})
    for value in xs[:: -(-len(xs) // 6)]:
        x, _ = place(value, 10**y_low)
        parts.append(f'<text class="tick" x="{x}" y="{_HEIGHT - 22}" text-anchor="middle">{value:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="tick" x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(chart.x_label)}</text>'
    )
    for number, (name, line) in enumerate(chart.lines.items()):
        style = f"line-{number}"
        positive = [point for point in line if min(point) > 0]
        path = " ".join("{},{}".format(*place(x, y)) for x, y in positive)
        parts.append(f'<polyline class="{style}" points="{path}"/>')
        for x, y in positive:
            across, down = place(x, y)
            tip = f"<title>{escape(name)}, {x:g}: {y:.3g} {escape(chart.y_label)}</title>"
            parts.append(f'<circle class="{style}" cx="{across}" cy="{down}" r="2.6">{tip}</circle>')
    legend = " ".join(f'<span class="key line-{n}">{escape(name)}</span>' for n, name in enumerate(chart.lines))
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(chart.title)}">{"".join(parts)}</svg>'
    caption = f"<b>{escape(chart.title)}</b>, {escape(chart.y_label)} {legend}"
    return f"<figure><figcaption>{caption}</figcaption>{svg}</figure>"


def _range(values: list[float]) -> tuple[float, float]:
    """The logarithms of the lowest and the highest value, a little apart."""
    low, high = math.log10(min(values)), math.log10(max(values))
    margin = max(0.04 * (high - low), 0.02)
    return low - margin, high + margin


def _power(power: int) -> str:
    if -3 <= power <= 3:
        return f"{10.0**power:g}"
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))

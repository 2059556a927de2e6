"""Draw figure 1 of the paper as docs/figure1.svg, whose boxes link to the code on the page docs/code.md.

`make figures` writes it; the links are anchors of that page, so the drawing is included there as part of the page.
"""

from html import escape
from pathlib import Path

DRAWING = Path(__file__).with_name("figure1.svg")
WIDTH, HEIGHT, BOX = 560, 742, 170
LEFT, RIGHT = 90, 340
"""Left edges of the boxes of encoder and decoder."""
BOTTOM = 546
"""Lower end of the layers."""
HEAD = ' marker-end="url(#head)"'
COLOURS = {
    "attention": "#fbe0c4", "feed-forward": "#c9e4f3", "norm": "#f2f0c8", "embedding": "#f6d3d8", "output": "#d9e8d3",
}  # fmt: skip
LINKS = {
    "attention": "multi-head-attention", "feed-forward": "feed-forward-network", "norm": "residual-and-norm",
    "embedding": "embedding", "output": "output-projection",
}  # fmt: skip


def box(x: int, y: int, kind: str, *lines: str, anchor: str = "", height: int = 0) -> str:
    """A box with its lines of text, linked to the code."""
    height = height or 18 * len(lines) + 10
    texts = "".join(
        f'<text x="{x + BOX / 2}" y="{y + height / 2 + 5 + 18 * (n - (len(lines) - 1) / 2)}">{escape(line)}</text>'
        for n, line in enumerate(lines)
    )
    shape = f'<rect x="{x}" y="{y}" width="{BOX}" height="{height}" rx="6" fill="{COLOURS[kind]}"/>'
    return f'<a href="#{anchor or LINKS[kind]}" aria-label="{escape(" ".join(lines))}">{shape}{texts}</a>'


def arrow(*points: tuple[float, float], head: bool = True) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline points="{path}"{HEAD if head else ""}/>'


def stack(x: int, sublayers: list[tuple[str, tuple[str, ...], str]], name: str) -> tuple[list[str], int]:
    """A layer from the bottom upwards: its sub-layers, each with its residual; also returns its upper edge."""
    parts, y, middle, side = [], BOTTOM, x + BOX / 2, x - 24
    for kind, lines, anchor in sublayers:
        size = 18 * len(lines) + 10
        below, y = y, y - size - 22
        parts += [
            arrow((middle, below), (middle, y + size)),
            box(x, y, kind, *lines, anchor=anchor),
            arrow((middle, below - 10), (side, below - 10), (side, y - 22), (x, y - 22)),
            arrow((middle, y), (middle, y - 8), head=False),
        ]
        y -= 36
        parts.append(box(x, y, "norm", "Add & Norm"))
    frame = f'<rect class="layer" x="{x - 40}" y="{y - 14}" width="{BOX + 62}" height="{BOTTOM - y + 8}" rx="14"/>'
    return [f'<a href="#{name.replace(" ", "-")}" aria-label="{name}">{frame}</a>', *parts], y


def drawing() -> str:
    """The figure as SVG."""
    middle, right = LEFT + BOX / 2, RIGHT + BOX / 2
    feed, attend = ("Feed", "Forward"), ("Multi-Head", "Attention")
    encoder, top = stack(LEFT, [("attention", attend, ""), ("feed-forward", feed, "")], "encoder layer")
    masked = ("attention", ("Masked", "Multi-Head", "Attention"), "")
    cross = ("attention", attend, "cross-attention")
    decoder, upper = stack(RIGHT, [masked, cross, ("feed-forward", feed, "")], "decoder layer")
    parts = [
        *encoder,
        *decoder,
        # The output of the encoder goes to the second attention of the decoder.
        arrow((middle, top), (middle, top - 30), (291, top - 30), (291, 378), (RIGHT, 378)),
        arrow((right, upper), (right, 178)),
        box(RIGHT, 148, "output", "Linear", anchor="output-projection"),
        arrow((right, 148), (right, 118)),
        box(RIGHT, 88, "output", "Softmax", anchor="loss"),
        arrow((right, 88), (right, 58)),
        f'<text x="{right}" y="46">Output probabilities</text>',
    ]  # fmt: skip
    for x, label, side in ((LEFT, "Inputs", "Input"), (RIGHT, "Outputs (shifted right)", "Output")):
        centre = x + BOX / 2
        parts += [
            f'<a href="#positional-encoding" aria-label="Positional encoding"><circle cx="{centre}" cy="584" r="11"/>'
            f'<text x="{centre}" y="589">+</text><text class="note" x="{centre + 18}" y="589">Positions</text></a>',
            arrow((centre, 573), (centre, BOTTOM), head=False),
            arrow((centre, 622), (centre, 595)),
            box(x, 622, "embedding", side, "Embedding"),
            arrow((centre, 694), (centre, 668)),
            f'<text x="{centre}" y="712">{label}</text>',
        ]
    parts += [
        f'<text class="times" x="{LEFT - 56}" y="440">N×</text>',
        f'<text class="times" x="{RIGHT + BOX + 28}" y="380" style="text-anchor:start">N×</text>',
    ]
    return (
        f'<svg class="figure1" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" '
        'aria-label="Figure 1 of the paper: the architecture of the Transformer; each box leads to its code">\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")

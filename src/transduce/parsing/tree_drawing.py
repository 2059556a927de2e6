"""Drawings of a constituency tree: as text, and as a self-contained SVG."""

from html import escape

from transduce.parsing.trees import UNKNOWN_TAG, Leaf, Tree

_LEVEL, _GAP, _MARGIN, _FONT_SIZE = 44.0, 14.0, 10.0, 14
_CHARACTER = 0.62 * _FONT_SIZE
"""Width of a character of the monospaced font."""


def draw_text(tree: Tree) -> str:
    """A tree with one line for each constituent and each word, indented by its depth."""
    return "\n".join([tree.label, *_branches(tree)])


def draw_svg(tree: Tree) -> str:
    """A tree as an SVG image: parents above their children, words in one row at the bottom."""
    drawing = _Drawing(_depth(tree))
    drawing.place(tree, 0)
    width, height = drawing.right - _GAP + _MARGIN, drawing.bottom + _FONT_SIZE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="{_FONT_SIZE}" '
        f'text-anchor="middle"><rect width="100%" height="100%" fill="#fff"/><g stroke="#888">'
        f"{''.join(drawing.lines)}</g>{''.join(drawing.texts)}</svg>"
    )


def _branches(tree: Tree) -> list[str]:
    lines: list[str] = []
    for number, child in enumerate(tree.children, start=1):
        corner, bar = ("└─ ", "   ") if number == len(tree.children) else ("├─ ", "│  ")
        if isinstance(child, Leaf):
            lines.append(corner + _described(child))
        else:
            lines += [corner + child.label, *(bar + line for line in _branches(child))]
    return lines


def _described(leaf: Leaf) -> str:
    return leaf.word if leaf.tag in (UNKNOWN_TAG, leaf.word) else f"{leaf.tag} {leaf.word}"


def _depth(node: Tree | Leaf) -> int:
    return 1 + max((_depth(child) for child in node.children), default=0) if isinstance(node, Tree) else 0


class _Drawing:
    """Lines and texts of an SVG, placed from left to right."""

    def __init__(self, depth: int) -> None:
        self.lines: list[str] = []
        self.texts: list[str] = []
        self.right = _MARGIN
        """Where the next word may begin."""
        self.bottom = _MARGIN + _FONT_SIZE + _LEVEL * depth
        """The line of the words."""

    def place(self, node: Tree | Leaf, level: int) -> float:
        """Place a node and all below it; returns the x coordinate of its centre."""
        text = node.label if isinstance(node, Tree) else _described(node)
        width = _CHARACTER * len(text)
        left = self.right
        if isinstance(node, Leaf) or not node.children:
            x, y = left + width / 2, self.bottom
            self.right += width + _GAP
        else:
            y = _MARGIN + _FONT_SIZE + _LEVEL * level
            below = [(self.place(child, level + 1), child) for child in node.children]
            x = max((below[0][0] + below[-1][0]) / 2, left + width / 2)
            self.right = max(self.right, x + width / 2 + _GAP)
            for child_x, child in below:
                child_y = self.bottom if isinstance(child, Leaf) else y + _LEVEL
                self.lines.append(
                    f'<line x1="{x:.1f}" y1="{y + 5:.1f}" x2="{child_x:.1f}" y2="{child_y - _FONT_SIZE:.1f}"/>'
                )
        weight = "" if isinstance(node, Leaf) else ' font-weight="bold"'
        self.texts.append(f'<text x="{x:.1f}" y="{y:.1f}"{weight}>{escape(text)}</text>')
        return x

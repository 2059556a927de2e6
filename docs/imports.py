"""Draw the packages and their imports as docs/rings.svg: `make figures`.

Packages are boxes in the layers of the import contract in pyproject.toml. An arrow leads from a package to one that it
imports; it is left out if a path of other arrows leads there too. The drawing therefore changes only if a dependency
between packages appears or disappears. `--check` writes nothing; it fails if the drawing is out of date.
"""

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "transduce"
DRAWING = Path(__file__).with_name("rings.svg")
RINGS = {
    "serve": "ring 2: shows features",
    "language_model": "ring 2: features",
    "report": "ring 2: pages",
    "translation": "ring 1",
    "cli": "shell",
    "fast": "fast",
    "training": "core",
    "config": "shared",
}
"""The rings, by a package of their first layer."""
WIDTH, MARGIN, ROW, BOX, GAP = 1000, 14, 46, 24, 8
CHARACTER = 6.7
"""Width of a character of a name."""
SWEEPS = 24
TEXT, LINE, FRAME = "#7d7d7d", "#8a8f98", "#2f81c7"

Edge = tuple[str, str]
Chain = list[str]
"""The nodes of an arrow, one in each layer that it passes."""


def layers() -> list[list[str]]:
    """The packages of each layer of the contract, top first; without `__main__`, which only calls the command line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rows = project["tool"]["importlinter"]["contracts"][0]["layers"]
    named = [[name.strip() for name in row.split("|")] for row in rows]
    return [row for row in named if row != ["__main__"]]


def imports(packages: set[str]) -> set[Edge]:
    """Every pair of packages of which the first imports the second, in functions and for types too."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        modules = _imported(ast.parse(path.read_text(encoding="utf-8")))
        imported = {module.split(".")[1] for module in modules if module.startswith("transduce.")}
        found |= {(package, other) for other in imported & packages if package in packages and package != other}
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "transduce":
            yield from (f"transduce.{name.name}" for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def reduced(edges: set[Edge]) -> list[Edge]:
    """The edges between whose ends there is no longer path."""
    following = {first: {other for start, other in edges if start == first} for first, _ in edges}

    def reachable(package: str) -> set[str]:
        return set().union(*({other} | reachable(other) for other in following.get(package, ())))

    return sorted(
        (first, second)
        for first, second in edges
        if not any(second in reachable(other) for other in following[first] - {second})
    )


def arrange(rows: list[list[str]], edges: list[Edge]) -> tuple[dict[str, tuple[float, int]], list[Chain]]:
    """The centre and the row of every node, and the nodes of every edge.

    An edge has a node of its own in each row that it crosses, so that it goes past the boxes there. Nodes are moved
    towards their neighbours in the rows above and below, a few times.
    """
    level = {name: number for number, row in enumerate(rows) for name in row}
    rows = [list(row) for row in rows]
    chains = []
    for first, second in edges:
        crossed = range(level[first] + 1, level[second])
        chain = [first, *(f"{first}>{second}@{number}" for number in crossed), second]
        for number, node in zip(crossed, chain[1:-1], strict=True):
            rows[number].append(node)
        chains.append(chain)
    neighbours: dict[str, list[str]] = {node: [] for row in rows for node in row}
    for chain in chains:
        for upper, lower in pairwise(chain):
            neighbours[upper].append(lower)
            neighbours[lower].append(upper)
    centre = {node: x for row in rows for node, x in zip(row, _spread(row, [WIDTH / 2] * len(row)), strict=True)}
    for _ in range(SWEEPS):
        for row in (*rows, *reversed(rows)):
            wanted = {
                node: sum(centre[other] for other in neighbours[node]) / (len(neighbours[node]) or 1) for node in row
            }
            row.sort(key=lambda node: (wanted[node], node))
            for node, x in zip(row, _spread(row, [wanted[node] for node in row]), strict=True):
                centre[node] = x
    return {node: (centre[node], number) for number, row in enumerate(rows) for node in row}, chains


def _width(node: str) -> float:
    return 4 if ">" in node else CHARACTER * len(node) + 12


def _spread(row: list[str], wanted: list[float]) -> list[float]:
    """Centres near the wanted ones, in this order, that do not overlap and stay inside the drawing."""
    distances = [(_width(left) + _width(right)) / 2 + GAP for left, right in pairwise(row)]
    centres: list[float] = []
    for number, x in enumerate(wanted):
        centres.append(max(x, centres[-1] + distances[number - 1]) if centres else x)
    shift = sum(x - y for x, y in zip(wanted, centres, strict=True)) / len(row)
    first, last = MARGIN + 6 + _width(row[0]) / 2, WIDTH - MARGIN - 6 - _width(row[-1]) / 2
    centres = [x + shift for x in centres]
    limit = last
    for number in reversed(range(len(row))):
        centres[number] = limit = min(centres[number], limit)
        limit -= distances[number - 1] if number else 0
    limit = first
    for number, x in enumerate(centres):
        centres[number] = max(x, limit)
        limit = centres[number] + (distances[number] if number < len(distances) else 0)
    return centres


def draw() -> str:
    """The drawing as SVG."""
    rows = layers()
    edges = reduced(imports({name for row in rows for name in row}))
    places, chains = arrange(rows, edges)
    rings = {number: RINGS[name] for number, row in enumerate(rows) for name in row if name in RINGS}
    top, y = dict[int, int](), 2
    for number in range(len(rows)):
        y += 18 * (number in rings)
        top[number], y = y + 8, y + ROW
    height = y + 4
    following = {first: ", ".join(other for start, other in edges if start == first) for first, _ in edges}
    described = "; ".join(f"{name} imports {others}" for name, others in following.items())
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{described}" font-family="sans-serif" font-size="12" fill="{TEXT}">',
        f'<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>',
    ]
    for (start, name), following_ring in zip(rings.items(), [*list(rings)[1:], None], strict=True):
        end = height - 4 if following_ring is None else top[following_ring] - 29
        lines.append(
            f'<rect x="{MARGIN / 2}" y="{top[start] - 25}" width="{WIDTH - MARGIN}" height="{end - top[start] + 25}" '
            f'rx="6" fill="{FRAME}" fill-opacity="{0.06 + 0.03 * (name == "core")}"/>'
            f'<text x="{WIDTH - MARGIN}" y="{top[start] - 9}" text-anchor="end" font-weight="bold">{name}</text>'
        )
    for chain in chains:
        (x, row), *_ = points = [places[node] for node in chain]
        y = top[row] + BOX
        path = f"M{x:.0f} {y}"
        for number, (x2, row2) in enumerate(points[1:], 2):
            y2 = top[row2] - 1
            middle = (y + y2) / 2
            path += f"C{x:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2}"
            x, y = x2, y2
            if number < len(points):
                y = top[row2] + BOX
                path += f"L{x:.0f} {y}"
        lines.append(f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.2" marker-end="url(#head)"/>')
    for row_names in rows:
        for name in row_names:
            x, row = places[name]
            width = _width(name)
            lines.append(
                f'<rect x="{x - width / 2:.0f}" y="{top[row]}" width="{width:.0f}" height="{BOX}" rx="4" '
                f'fill="{FRAME}" fill-opacity="0.12" stroke="{FRAME}"/>'
                f'<text x="{x:.0f}" y="{top[row] + 16}" text-anchor="middle">{name}</text>'
            )
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> None:
    """Write or compare; exit with 1 if the drawing is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    drawing = draw()
    if not parser.parse_args().check:
        DRAWING.write_text(drawing, encoding="utf-8")
    elif not DRAWING.exists() or DRAWING.read_text(encoding="utf-8") != drawing:
        sys.exit("docs/rings.svg differs from the imports; `make figures` writes it")


if __name__ == "__main__":
    main()

"""Write the measured figures of the documentation from benchmarks/figures.json: `make figures`.

`--check` writes nothing; it fails if a page or a chart differs from the file, or a page shows a measured figure without
a source.

A table between `<!-- table NAME -->` and `<!-- end -->` is written from the entry NAME; `<!-- table NAME: A; B -->`
selects its columns. After any other paragraph or table, a comment names the source of its figures, in the order of the
text. A figure is rounded as the text shows it:

    Translation runs at 343,000 tokens/s.

    <!-- figures
    343,000 = decode-h200 > 256 sentences, beam 4 > transduce gpu
    -->
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import charts

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "benchmarks" / "figures.json"
COMPLETE = (
    "README.md", "CONTRIBUTING.md", "docs/features.md", "docs/getting-started.md", "docs/index.md",
    "docs/measurements.md", "docs/results.md",
)  # fmt: skip
"""Pages on which every measured figure must have a source."""
TABLE = re.compile(r"(<!-- table ([\w-]+)(?:: (.*?))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)
SOURCES = re.compile(r"(?P<block>(?:[^\n]+\n)+)\n<!-- figures\n(?P<lines>(?:[^\n]+\n)+?)-->")
RATES = "tokens/s|sentences/s|requests/s|frames/s|TFLOP/s|GOP/s|GB/s"
UNITS = rf"(?:{RATES}|[MG]B|ms|s|seconds|minutes|hours|BLEU|F1|times)(?!\w)|%"
MEASURED = re.compile(rf"\d[\d,.]* ?(?:{UNITS})|(?<!\w)(?:BLEU|F1|chrF2?|TER)(?: of)? \d[\d,.]*")
Entry = dict[str, Any]


class FigureError(Exception):
    """A page does not agree with the file."""


def fill(page: str, entries: dict[str, Entry]) -> str:
    """The page with the figures of the entries."""
    page = TABLE.sub(lambda match: f"{match[1]}{table(entries, match[2], match[3])}\n{match[5]}", page)
    return SOURCES.sub(lambda match: _filled(match, entries), page)


def table(entries: dict[str, Entry], name: str, columns: str | None = None) -> str:
    """The table of an entry in Markdown, between its description and its unit, processor, command and date."""
    if name not in entries:
        raise FigureError(f"there is no entry {name}")
    entry = entries[name]
    rows: dict[str, dict[str, Any]] = entry["results"]
    known = list(dict.fromkeys(column for row in rows.values() for column in row))
    chosen = columns.split("; ") if columns else known
    if unknown := set(chosen) - set(known):
        raise FigureError(f"{name} has no column {', '.join(sorted(unknown))}")
    rows = {label: row for label, row in rows.items() if any(column in row for column in chosen)}
    cells = {column: _column([row.get(column, "") for row in rows.values()]) for column in chosen}
    lines = [[entry.get("rows", ""), *chosen], ["---"] * (len(chosen) + 1)]
    lines += [[label, *(cells[column][n] for column in chosen)] for n, label in enumerate(rows)]
    caption = [f"{entry['what']}:", ""] if "what" in entry else []
    return "\n".join([*caption, *("| " + " | ".join(line) + " |" for line in lines), "", source(entry)])


def source(entry: Entry) -> str:
    """Where the figures of an entry come from, in a line."""
    commands = entry["command"] if isinstance(entry["command"], list) else list(filter(None, [entry["command"]]))
    facts = [
        entry.get("unit"),
        entry["processor"] or "the processor was not recorded",
        *(f"`{command}`" for command in commands),
        entry.get("recorded"),
    ]
    return f"<sub>{'; '.join(filter(None, facts))}</sub>"


def _column(values: Sequence[Any]) -> list[str]:
    """The values as text; numbers that were recorded with few digits get the same number of decimals."""
    numbers = [x for value in values for x in (value if isinstance(value, list) else [value]) if isinstance(x, float)]
    short = [len(str(x).partition(".")[2]) for x in numbers if _is_short(x)]
    return [_shown(value, max(short, default=0)) for value in values]


def _shown(value: Any, decimals: int) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(x, decimals) for x in value)
    if isinstance(value, float):
        if _is_short(value):
            return f"{value:,.{decimals}f}"
        digits = 4 if abs(value) >= 1000 else 3
        rounded = float(f"{value:.{digits}g}")
        return f"{rounded:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{rounded:#.{digits}g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_short(value: float) -> bool:
    """Whether the number was recorded as it is to be shown, rather than measured with all its digits."""
    return len(str(value).replace(".", "").lstrip("0")) <= 5 and "e" not in str(value)


def _filled(match: re.Match[str], entries: dict[str, Entry]) -> str:
    """A block of text and the comment with its sources, with the figures of the entries."""
    block, lines, position = match["block"], [], 0
    for line in match["lines"].splitlines():
        shown, separator, path = line.partition(" = ")
        if not separator:
            raise FigureError(f"'{line}' must be FIGURE = ENTRY > ROW > COLUMN")
        found = re.compile(rf"(?<![\d.,]){re.escape(shown)}(?!\d|[.,]\d)").search(block, position)
        if not found:
            raise FigureError(f"'{shown}' is not in the text before the comment, or not in this order")
        text = like(shown, look_up(entries, path))
        block = block[: found.start()] + text + block[found.end() :]
        position = found.start() + len(text)
        lines.append(f"{text} = {path}")
    return "\n".join([block, "<!-- figures", *lines, "-->"])


def look_up(entries: dict[str, Entry], path: str) -> Any:
    """The figure at ENTRY > ROW > COLUMN, or the difference of two: PATH minus PATH."""
    first, separator, second = path.partition(" minus ")
    if separator:
        return look_up(entries, first) - look_up(entries, second)
    name, *keys = path.split(" > ")
    value: Any = entries.get(name, {}).get("results")
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if value is None or isinstance(value, dict):
        raise FigureError(f"there is no figure {path}")
    return value


def like(text: str, value: Any) -> str:
    """A figure, rounded as the text: to as many decimals, or if it has none, to as many zeros at its end."""
    if isinstance(value, list):
        return ", ".join(like(part, x) for part, x in zip(text.split(", "), value, strict=True))
    if isinstance(value, str):
        return value
    decimals = len(text.partition(".")[2])
    if decimals:
        return f"{value:,.{decimals}f}"
    digits = text.replace(",", "")
    zeros = min(len(digits) - len(digits.rstrip("0")), max(len(digits) - 2, 0))
    return f"{round(value / 10**zeros) * 10**zeros:,}"


def without_source(page: str) -> list[str]:
    """The measured figures of a page that come from no entry."""
    page = TABLE.sub("", re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE))
    page = SOURCES.sub(_without_figures, page)
    page = re.sub(r"<!--.*?-->|`[^`\n]*`|\]\([^)]*\)", "", page, flags=re.DOTALL)
    return MEASURED.findall(page)


def _without_figures(match: re.Match[str]) -> str:
    block, position = match["block"], 0
    for line in match["lines"].splitlines():
        shown = line.partition(" = ")[0]
        position = block.find(shown, position)
        block = block[:position] + "x" + block[position + len(shown) :]
    return block


def wrong(root: Path, entries: dict[str, Entry], *, write: bool) -> Iterator[str]:
    """A line for each figure without a source, and for each page and chart that differs, unless it is written."""
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    for path in sorted(pages):
        name, text = str(path.relative_to(root)), path.read_text(encoding="utf-8")
        try:
            filled = fill(text, entries)
        except FigureError as error:
            yield f"{name}: {error}"
            continue
        if name in COMPLETE:
            yield from (f"{name}: {figure} has no source in benchmarks/figures.json" for figure in without_source(text))
        yield from _compare(path, text, filled, root, write=write)
    for chart, svg in charts.draw_all(lambda path: look_up(entries, path)).items():
        path = root / "docs" / "charts" / f"{chart}.svg"
        yield from _compare(path, path.read_text(encoding="utf-8") if path.exists() else "", svg, root, write=write)


def _compare(path: Path, text: str, filled: str, root: Path, *, write: bool) -> Iterator[str]:
    if text == filled:
        return
    if write:
        path.parent.mkdir(exist_ok=True)
        path.write_text(filled, encoding="utf-8")
        print(f"{path.relative_to(root)} written")
    else:
        yield f"{path.relative_to(root)} differs from benchmarks/figures.json; `make figures` writes it"


def main() -> None:
    """Write or compare; exit with 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    entries = json.loads(FIGURES.read_text(encoding="utf-8"))
    mistakes = list(wrong(ROOT, entries, write=not options.check))
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    sys.exit(bool(mistakes))


if __name__ == "__main__":
    main()

"""`paper.html`: all measured sections in one file that needs no network."""

from collections.abc import Mapping
from html import escape
from pathlib import Path

from transduce.disk import write_atomically
from transduce.paper.charts import log_chart
from transduce.paper.section import Section, Table
from transduce.paper.text import verdicts
from transduce.training.report import STYLE

PAGE = "paper.html"
ORDER = ("table1", "scores", "trained_scores", "table2", "table3", "table4")
"""The sections of the page, in the order of the paper."""
_COLOURS = ("var(--a)", "var(--b)", "#3c9d5d", "#a855c7", "#c74a55")
_STYLE = (
    "".join(
        f"polyline.line-{n} {{ stroke: {colour}; }} circle.line-{n} {{ fill: {colour}; }} "
        f".key.line-{n}::before {{ color: {colour}; }}\n"
        for n, colour in enumerate(_COLOURS)
    )
    + """
.verdict { white-space: nowrap; font-weight: 600; } .confirmed { color: #3c9d5d; } .contradicted { color: #c74a55; }
.within-noise, .not-checked { color: var(--soft); } .card { margin: 14px 0; } td, th { font-size: 14px; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } th.number { text-align: right; }
"""
)


def write_page(path: Path, sections: Mapping[str, Section]) -> None:
    """Write the page of all sections measured so far."""
    body = [
        "<h1>Attention Is All You Need, checked</h1>",
        '<div class="soft">Each claim of the paper that can be measured, its figure, ours, and whether they agree; '
        "made by <code>transduce paper</code>.</div>",
    ]
    for name in ORDER:
        if name in sections:
            body.append(_section(name, sections[name]))
        else:
            body.append(f'<h2 id="{name}">{name}</h2><p class="soft">Not measured yet.</p>')
    page = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention Is All You Need, checked</title><style>{STYLE}{_STYLE}</style></head>
<body>{"".join(body)}</body>
</html>
"""
    write_atomically(path, page.encode())


def _section(name: str, section: Section) -> str:
    claims = "".join(
        f'<tr><td>{escape(claim.claim)}<td>{escape(claim.paper)}<td>{escape(claim.ours)}'
        f'<td class="verdict {claim.verdict.replace(" ", "-")}">{claim.verdict}'
        for claim in section.claims
    )  # fmt: skip
    charts = "".join(map(log_chart, section.charts))
    return "".join(
        [
            f'<h2 id="{name}">{escape(section.title)}</h2>',
            f'<div class="soft">{escape(section.measured_on)}. {verdicts(section)}.</div>',
            '<div class="card wide"><table><tr><th>claim<th>paper<th>here<th>verdict' + claims + "</table></div>",
            f'<div class="charts">{charts}</div>' if charts else "",
            *(_table(table) for table in section.tables if table.rows),
            *(f'<p class="soft">{escape(note)}</p>' for note in section.notes),
        ]
    )


def _table(table: Table) -> str:
    head = "".join(f"<th{' class=number' if n else ''}>{escape(cell)}" for n, cell in enumerate(table.head))
    rows = "".join(
        "<tr>" + "".join(f"<td{' class=number' if n else ''}>{escape(cell)}" for n, cell in enumerate(row))
        for row in table.rows
    )
    return f'<div class="card wide"><b>{escape(table.title)}</b><table><tr>{head}{rows}</table></div>'

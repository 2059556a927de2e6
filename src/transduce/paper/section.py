"""A section: what is measured for one table of the paper, as data, as text for a terminal, and as a page."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal

from transduce.disk import write_atomically
from transduce.errors import RunError
from transduce.report import page
from transduce.report.charts import Series, line_chart

Verdict = Literal["confirmed", "contradicted", "within noise", "not checked"]
_SIGNS: dict[Verdict, str] = {"confirmed": "+", "contradicted": "!", "within noise": "~", "not checked": "?"}
PAGE, RESULTS = "paper.html", "results.json"
PRINTED: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("printed.toml").read_text("utf-8"))
"""What the paper prints, by table, and the titles and notes of sections."""
ORDER = ("table1", "scores", "trained_scores", "table2", "table3", "table4")
"""The sections of the page, in the order of the paper."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, its figure, ours, and whether they agree."""

    claim: str
    paper: str
    ours: str
    verdict: Verdict

    @classmethod
    def checked(cls, claim: str, paper: str, ours: str, agrees: bool) -> "Claim":
        """A claim that is either confirmed or contradicted."""
        return cls(claim, paper, ours, "confirmed" if agrees else "contradicted")


@dataclass(frozen=True)
class Table:
    """Figures in rows; all cells are text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Chart:
    """Lines through points, on logarithmic axes."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Section:
    """The measurements for one table or section of the paper."""

    title: str
    measured_on: str
    """The machine, and the settings that affect all figures."""
    claims: Sequence[Claim]
    tables: Sequence[Table] = field(default_factory=list)
    charts: Sequence[Chart] = field(default_factory=list)
    notes: Sequence[str] = field(default_factory=list)

    @classmethod
    def printed(cls, name: str, *, notes: Sequence[str] = (), **content: Any) -> "Section":
        """A section with the title and the notes of `printed.toml`, and further notes."""
        printed = PRINTED[name]
        return cls(title=printed["title"], notes=[*printed.get("notes", ()), *notes], **content)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Section":
        """The section that `asdict` turned into a dictionary."""
        parts = {
            "claims": [Claim(**claim) for claim in content["claims"]],
            "tables": [Table(**table) for table in content["tables"]],
            "charts": [Chart(**chart) for chart in content["charts"]],
        }
        return cls(**{**content, **parts})


class Results:
    """`results.json` of a folder: the sections, and the trained models and scored parsers from which they are made."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RESULTS
        self._content: dict[str, Any] = {"sections": {}, "rows": {}}
        if self.path.exists():
            try:
                self._content = json.loads(self.path.read_text(encoding="utf-8"))
                self._content["sections"], self._content["rows"]
            except (ValueError, KeyError, TypeError):
                raise RunError(f"{self.path}: not the results of transduce paper; name another --out") from None

    @property
    def sections(self) -> dict[str, Section]:
        return {name: Section.of(content) for name, content in self._content["sections"].items()}

    def rows(self, table: str) -> dict[str, Any]:
        """The finished rows of a table, by name."""
        return dict(self._content["rows"].get(table, {}))

    def add_row(self, table: str, name: str, row: Mapping[str, Any]) -> None:
        self._content["rows"].setdefault(table, {})[name] = dict(row)
        self._write()

    def add_section(self, name: str, section: Section) -> None:
        """Keep a section, instead of an earlier one of this name."""
        self._content["sections"][name] = asdict(section)
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, json.dumps(self._content, indent=1, ensure_ascii=False).encode())


# Text


def section_text(section: Section) -> str:
    """The claims with the paper's figure and ours, then the tables and the number of claims with each verdict."""
    return "\n".join(_lines(section)) + "\n"


def _lines(section: Section) -> Iterator[str]:
    yield section.title
    yield f"({section.measured_on})"
    for claim in section.claims:
        yield f"{_SIGNS[claim.verdict]} {claim.claim}"
        yield f"    paper: {claim.paper}; here: {claim.ours}: {claim.verdict}"
    for table in section.tables:
        if table.rows:
            yield f"\n{table.title}"
            widths = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=True)]
            for first, *others in (table.head, *table.rows):
                cells = [first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]
                yield "  ".join(cells).rstrip()
    yield f"\n{_verdicts(section)}"


def _verdicts(section: Section) -> str:
    """How many claims have each verdict."""
    found = [claim.verdict for claim in section.claims]
    return ", ".join(f"{found.count(verdict)} {verdict}" for verdict in _SIGNS if verdict in found)


# The page

_STYLE = """
.verdict { white-space: nowrap; font-weight: 600; } .confirmed { color: #3c9d5d; } .contradicted { color: #c74a55; }
.within-noise, .not-checked { color: var(--soft); } .card { margin: 14px 0; } td, th { font-size: 14px; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } th.number { text-align: right; }
"""
_COLOURS = "abcdef"
"""Classes of lines in the style sheet of the report."""


def write_page(path: Path, sections: Mapping[str, Section]) -> None:
    """Write the page of all sections measured so far, as one file that needs no network."""
    body = [
        f"<style>{_STYLE}</style>",
        "<h1>Attention Is All You Need, checked</h1>",
        '<div class="soft">Each claim of the paper that can be measured, its figure, ours, and whether they agree; '
        "made by <code>transduce paper</code>.</div>",
    ]
    for name in ORDER:
        if name in sections:
            body.append(_section_html(name, sections[name]))
        else:
            body.append(f'<h2 id="{name}">{name}</h2><p class="soft">Not measured yet.</p>')
    page.write_page(path, "Attention Is All You Need, checked", "".join(body))


def _section_html(name: str, section: Section) -> str:
    claims = "".join(
        f'<tr><td>{escape(claim.claim)}<td>{escape(claim.paper)}<td>{escape(claim.ours)}'
        f'<td class="verdict {claim.verdict.replace(" ", "-")}">{claim.verdict}'
        for claim in section.claims
    )  # fmt: skip
    charts = "".join(map(_chart_html, section.charts))
    return "".join(
        [
            f'<h2 id="{name}">{escape(section.title)}</h2>',
            f'<div class="soft">{escape(section.measured_on)}. {_verdicts(section)}.</div>',
            '<div class="card wide"><table><tr><th>claim<th>paper<th>here<th>verdict' + claims + "</table></div>",
            f'<div class="charts">{charts}</div>' if charts else "",
            *(_table_html(table) for table in section.tables if table.rows),
            *(f'<p class="soft">{escape(note)}</p>' for note in section.notes),
        ]
    )


def _table_html(table: Table) -> str:
    def row_html(tag: str, row: Sequence[str]) -> str:
        cells = (f"<{tag}{' class=number' if n else ''}>{escape(cell)}" for n, cell in enumerate(row))
        return "<tr>" + "".join(cells)

    rows = row_html("th", table.head) + "".join(row_html("td", row) for row in table.rows)
    return f'<div class="card wide"><b>{escape(table.title)}</b><table>{rows}</table></div>'


def _chart_html(chart: Chart) -> str:
    lines = zip(_COLOURS, chart.lines.items(), strict=False)
    series = [Series(name, [point for point in line if min(point) > 0], style) for style, (name, line) in lines]
    title = f"{chart.title}, {chart.y_label}"
    return line_chart(title, series, "{:.3g}".format, unit=chart.x_label, log_log=True)

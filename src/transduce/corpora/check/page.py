"""The page of `transduce data check`: lengths, scripts, languages and repetition of a corpus as charts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from transduce.corpora.check.lengths import Floats
from transduce.corpora.check.report import DUPLICATES, ERRORS, LEAKS, CheckResults, Issue, Report
from transduce.files.scripts import script
from transduce.report.charts import Series, line_chart
from transduce.report.page import write_page

_STYLE = """
.bar { width: 40%; } .bar div { background: var(--a); height: 10px; margin-top: 6px; min-width: 1px; }
.count { text-align: right; font-variant-numeric: tabular-nums; }
"""
_BINS = 40
_SCRIPTS = 8
"""Number of scripts that are shown; the others are counted together."""
_LONGEST_SHOWN = 99.5
"""Percentile of the lengths at which the chart ends: a single very long text would squeeze the others."""
_LANGUAGES = [issue for issue in ERRORS if "language" in issue.name or "foreign" in issue.name or "swap" in issue.name]
_ALIGNMENT = [issue for issue in ERRORS if issue not in _LANGUAGES]


def write_check_page(path: Path, results: CheckResults, report: Report) -> None:
    """Write the charts of a check to one file that needs no network."""
    scan, pairs = results.scan, len(results.scan)
    lengths, ratios = (scan.src_lengths, scan.tgt_lengths), scan.tgt_lengths / np.maximum(scan.src_lengths, 1)
    sides = ("source", "target")
    letters = [_scripts(source for _, source, _ in scan.sample), _scripts(target for _, _, target in scan.sample)]

    def issues(title: str, rest: str, chosen: Sequence[Issue]) -> str:
        counts = {issue.description.removeprefix("whose "): results.findings.count(issue) for issue in chosen}
        return _bar_chart(title, {rest: pairs - sum(counts.values())} | counts)

    charts = [
        line_chart(
            "Length in characters",
            [Series(side, _histogram(values), style) for side, values, style in zip(sides, lengths, "ab", strict=True)],
            "{:,.0f}".format,
            unit="characters",
        ),
        line_chart(
            "Length of the target relative to the source", [Series("pairs", _histogram(ratios), "a")], unit="times"
        ),
        *(_bar_chart(f"Scripts of the {side}, letters", counts) for side, counts in zip(sides, letters, strict=True)),
        issues("Languages", "as expected", _LANGUAGES),
        issues("Alignment", "nothing found", _ALIGNMENT),
        issues("Repetition", "the first of their kind", DUPLICATES),
        *([issues("Leaks", "not in the --against text", LEAKS)] if results.held_out else []),
    ]
    body = [
        f"<style>{_STYLE}</style>",
        f"<h1>{escape(', '.join(report.files))}</h1>",
        f'<div class="soft">{pairs:,} pairs: {escape(report.verdict)}</div>',
        f'<h2>Charts</h2><div class="charts">{"".join(charts)}</div>',
        _examples(report),
    ]
    write_page(path, "data check", "".join(body))


def _histogram(values: Floats) -> list[tuple[float, float]]:
    """The number of values in each of about 40 ranges, at the middle of the range."""
    end = max(float(np.percentile(values, _LONGEST_SHOWN)), 1e-9) if len(values) else 1.0
    counts, edges = np.histogram(values, bins=_BINS, range=(0, end))
    return list(zip(((edges[:-1] + edges[1:]) / 2).tolist(), counts.tolist(), strict=True))


def _scripts(texts: Iterable[str]) -> dict[str, int]:
    """The number of letters of the most frequent scripts."""
    characters = Counter(character for text in texts for character in text if character.isalpha())
    counts: Counter[str] = Counter()
    for character, count in characters.items():
        counts[script(character).capitalize()] += count
    shown = dict(counts.most_common(_SCRIPTS))
    rest = counts.total() - sum(shown.values())
    return shown | ({"others": rest} if rest else {})


def _examples(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{escape(finding.description)}<td>{finding.pairs:,}<td>"
        + "".join(f"<div>{escape(example.source)}<br>{escape(example.target)}</div>" for example in finding.examples)
        for finding in report.findings
    )
    head = "<tr><th>pairs<th>number<th>examples"
    return f'<h2>Findings</h2><div class="card wide"><table>{head}{rows}</table></div>' if rows else ""


def _bar_chart(title: str, counts: Mapping[str, int]) -> str:
    """A titled list of counts, each with its share of all as a bar; an empty string if all are zero."""
    total = sum(counts.values())
    rows = "".join(
        f'<tr><td>{escape(name)}<td class="count">{count:,}<td class="count">{count / total:.1%}'
        f'<td class="bar"><div style="width:{100 * count / total:.2f}%"></div>'
        for name, count in counts.items()
        if total
    )
    return f"<figure><figcaption><b>{escape(title)}</b></figcaption><table>{rows}</table></figure>" if rows else ""

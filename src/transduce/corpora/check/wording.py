"""A report in lines for people."""

from collections.abc import Iterator

from transduce.corpora.check.report import Finding, Report, Slip
from transduce.text.printable import printable

_WIDTH = 100  # characters of a text that are shown


def lines(report: Report) -> Iterator[str]:
    """What was found, what to do about it, and in the end whether the corpus is fit to train on."""
    yield f"{', '.join(report.files)}: {report.pairs:,} pairs"
    for one in report.against:
        yield f"{one.file}: {one.leaked:,} of {one.pairs:,} pairs have a side that is in the corpus too"
    yield from report.unusable
    for finding in report.findings:
        yield ""
        yield from _finding_lines(finding, report.slips if finding.kind == "shifted" else [])
    yield ""
    if not report.against:
        yield "leaks were not looked for: name the validation and test text with --against"
    yield from report.notes
    yield report.verdict


def _finding_lines(finding: Finding, slips: list[Slip]) -> Iterator[str]:
    pairs = "pair" if finding.pairs == 1 else "pairs"
    yield f"{finding.pairs:,} {pairs} ({_percent(finding.share)}) {finding.says}"
    for slip in slips:
        yield (
            f"  {slip.file}: from about line {slip.first_line:,} to line {slip.last_line:,}, "
            f"source n belongs to target n {'+' if slip.by > 0 else '-'} {abs(slip.by)}"
        )
    for one in finding.examples:
        yield f"  {one.file}, line {one.line}" + (f" (as {one.same_as})" if one.same_as else "")
        yield f"    {_short(one.source)}"
        yield f"    {_short(one.target)}"
    yield f"  → {finding.remedy}"


def _percent(share: float) -> str:
    return f"{share:.2%}" if share >= 0.0001 else f"{share:.4%}"


def _short(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"

"""A report as lines of text."""

from collections.abc import Iterator

from transduce.corpora.check.report import Finding, Report, ShiftedLines
from transduce.files.pairs import count_pairs
from transduce.files.texts import one_line

_WIDTH = 100  # characters of a text that are shown


def format_report(report: Report) -> Iterator[str]:
    """Yield the lines of a report: the findings with their remedies, then the verdict."""
    yield f"{', '.join(report.files)}: {report.pairs:,} pairs"
    for held_out in report.against:
        yield f"{held_out.file}: {held_out.leaked:,} of {held_out.pairs:,} pairs have a side that is also in the corpus"
    yield from report.unusable
    for finding in report.findings:
        yield ""
        yield from _finding_lines(finding, report.shifts if finding.issue == "shifted" else [])
    yield ""
    if not report.against:
        yield "leaks were not checked: name the validation and test text with --against"
    yield from report.notes
    yield report.verdict


def _finding_lines(finding: Finding, shifts: list[ShiftedLines]) -> Iterator[str]:
    yield f"{count_pairs(finding.pairs)} ({_percent(finding.share)}) {finding.description}"
    for shift in shifts:
        yield (
            f"  {shift.file}: from about line {shift.first_line:,} to line {shift.last_line:,}, "
            f"source n belongs to target n {'+' if shift.offset > 0 else '-'} {abs(shift.offset)}"
        )
    for example in finding.examples:
        yield f"  {example.file}, line {example.line}" + (f" (same as {example.same_as})" if example.same_as else "")
        yield f"    {_short(example.source)}"
        yield f"    {_short(example.target)}"
    yield f"  → {finding.remedy}"


def _percent(share: float) -> str:
    return f"{share:.2%}" if share >= 0.0001 else f"{share:.4%}"


def _short(text: str) -> str:
    text = one_line(" ".join(text.split()))
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"

"""The report of a corpus check: counts, examples and a verdict."""

from dataclasses import dataclass

import numpy as np

from transduce.corpora.check.duplicates import Keys, pair_keys
from transduce.corpora.check.findings import Example, Findings
from transduce.corpora.check.issues import ERRORS, ISSUES, LEAKS, SHIFTED, Issue
from transduce.corpora.check.misalignment import Shift
from transduce.corpora.check.robust_statistics import Flags
from transduce.corpora.check.scan import CorpusScan

MAX_ERRORS = 0.1
"""Share of misaligned and wrong-language pairs above which a corpus is not fit to train on."""


@dataclass(frozen=True)
class CheckResults:
    """The results of both passes over a corpus."""

    scan: CorpusScan
    held_out: CorpusScan | None
    findings: Findings
    shifts: list[Shift]
    notes: list[str]


@dataclass(frozen=True)
class ShownExample:
    """An example with its place, and the place of the earlier or held-out pair that it repeats."""

    file: str
    line: int
    source: str
    target: str
    same_as: str | None


@dataclass(frozen=True)
class Finding:
    """All pairs with one issue."""

    issue: str
    pairs: int
    share: float
    description: str
    remedy: str
    left_out: bool
    """Whether --out leaves such pairs out."""
    examples: list[ShownExample]


@dataclass(frozen=True)
class ShiftedLines:
    """A range of lines in which line n of the source belongs to line n + `offset` of the target."""

    file: str
    first_line: int
    last_line: int
    offset: int


@dataclass(frozen=True)
class HeldOutFile:
    """A file of --against, and the number of its pairs with a side that is in the corpus."""

    file: str
    pairs: int
    leaked: int


@dataclass(frozen=True)
class Report:
    """The result of a check."""

    files: list[str]
    pairs: int
    unusable: list[str]
    """The lines that could not be read, one entry for each reason."""
    against: list[HeldOutFile]
    findings: list[Finding]
    shifts: list[ShiftedLines]
    notes: list[str]
    passing: int
    """Number of pairs that --out writes."""
    fit: bool
    verdict: str


def make_report(results: CheckResults) -> Report:
    """Make the report of these results."""
    scan, held_out, findings = results.scan, results.held_out, results.findings
    passing = int((~findings.left_out(0, len(scan))).sum())
    faults = _faults(findings)
    return Report(
        files=scan.names(),
        pairs=len(scan),
        unusable=scan.report.lines(),
        against=_held_out_files(scan, held_out) if held_out else [],
        findings=[_finding(issue, scan, held_out, findings) for issue in ISSUES if findings.count(issue)],
        shifts=[ShiftedLines(*scan.place(s.first), scan.place(s.end - 1)[1], s.offset) for s in results.shifts],
        notes=results.notes,
        passing=passing,
        fit=not faults,
        verdict=_verdict(faults, len(scan) - passing),
    )


def _faults(findings: Findings) -> list[str]:
    """The reasons why a corpus is not fit to train on."""
    leaked = sum(findings.count(issue) for issue in LEAKS)
    shifted = findings.count(SHIFTED)
    errors = sum(findings.count(issue) for issue in ERRORS)
    return [
        *([f"text of the --against set is in {leaked:,} of its pairs"] if leaked else []),
        *([f"its sides are shifted in {shifted:,} pairs"] if shifted else []),
        *([f"{errors / findings.pairs:.0%} of its pairs are wrong"] if errors > MAX_ERRORS * findings.pairs else []),
    ]


def _verdict(faults: list[str], left_out: int) -> str:
    if faults:
        return f"not fit to train on: {'; '.join(faults)}"
    if left_out:
        return f"fit to train on; better without the {left_out:,} pairs that --out leaves out"
    return "fit to train on"


def _finding(issue: Issue, scan: CorpusScan, held_out: CorpusScan | None, findings: Findings) -> Finding:
    pairs = findings.count(issue)
    matches = _matches(issue.name, scan, held_out)
    return Finding(
        issue=issue.name,
        pairs=pairs,
        share=pairs / len(scan),
        description=issue.description,
        remedy=issue.remedy,
        left_out=issue.left_out,
        examples=[_shown(example, scan, matches) for example in findings.examples[issue.name]],
    )


def _shown(example: Example, scan: CorpusScan, matches: tuple[Keys, Keys, CorpusScan] | None) -> ShownExample:
    same_as = None
    if matches:
        own, others, of = matches
        file, line = of.place(int(np.argmax(others == own[example.number])))
        same_as = f"line {line}" if of is scan and len(scan.corpus) == 1 else f"{file}, line {line}"
    return ShownExample(*scan.place(example.number), example.source, example.target, same_as)


def _matches(issue: str, scan: CorpusScan, held_out: CorpusScan | None) -> tuple[Keys, Keys, CorpusScan] | None:
    """For an issue that is detected by keys: the keys of the corpus, the keys that they equal, and of which scan."""
    pairs = pair_keys(scan.src, scan.tgt)
    if held_out:
        if issue == "leaked_pair":
            return pairs, pair_keys(held_out.src, held_out.tgt), held_out
        if issue == "leaked_source":
            return scan.src, held_out.src, held_out
        if issue == "leaked_target":
            return scan.tgt, held_out.tgt, held_out
    repeated = {"duplicate": scan.exact, "near_duplicate": pairs, "other_translation": scan.src}
    return (repeated[issue], repeated[issue], scan) if issue in repeated else None


def _held_out_files(scan: CorpusScan, held_out: CorpusScan) -> list[HeldOutFile]:
    leaked: Flags = np.isin(held_out.src, scan.src) | np.isin(held_out.tgt, scan.tgt)
    files = []
    for entry, name in enumerate(held_out.names()):
        inside = held_out.entries == entry
        files.append(HeldOutFile(name, int(inside.sum()), int(leaked[inside].sum())))
    return files

"""The issues that pairs of a corpus can have, which pairs have them, and the report with its verdict."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transduce.corpora.check.lengths import Flags, Shift
from transduce.corpora.check.scan import CorpusScan, Keys, pair_keys, unordered_pair_keys
from transduce.files.pairs import count_pairs
from transduce.files.texts import one_line

MAX_ERRORS = 0.1
"""Share of misaligned and wrong-language pairs above which a corpus is not fit to train on."""
EXAMPLES = 3
"""Number of examples of each issue."""
_WIDTH = 100  # characters of a text that are shown


@dataclass(frozen=True)
class Issue:
    name: str
    description: str
    """What such pairs have in common; in the report it follows their number."""
    remedy: str
    left_out: bool = True
    """Whether --out leaves such pairs out."""


_LEAK = "leave them out: they inflate the score on that set"
_SWAP = "leave them out, or swap their sides"
_LANGUAGE = "leave them out: the model would learn to write the wrong language"
_ALIGNMENT = "leave them out; if there are many, check how the sides were aligned"

LEAKS = (
    Issue("leaked_pair", "whose source and translation are a pair of the --against text", _LEAK),
    Issue("leaked_source", "whose source is in the --against text", _LEAK),
    Issue("leaked_target", "whose target is in the --against text", _LEAK),
)
SHIFTED = Issue(
    "shifted", "in which one side is shifted by some lines", "restore the missing line, or delete the extra one"
)
ERRORS = (
    SHIFTED,
    Issue("copied", "whose target is a copy of the source", _LANGUAGE),
    Issue("swapped", "whose source and target are swapped, by their language", _SWAP),
    Issue("source_in_target_language", "whose source is in the target's language", _LANGUAGE),
    Issue("target_in_source_language", "whose target is in the source's language", _LANGUAGE),
    Issue("foreign_source", "whose source seems to be in neither language", _LANGUAGE),
    Issue("foreign_target", "whose target seems to be in neither language", _LANGUAGE),
    Issue("length", "whose lengths do not match", _ALIGNMENT),
    Issue("unrelated", "whose words do not translate each other", _ALIGNMENT),
)
"""A pair is counted under the first of these that applies."""
DUPLICATES = (
    Issue("duplicate", "that occurred before, word for word", "leave them out, unless their frequency matters"),
    Issue("near_duplicate", "that occurred before but for case, punctuation or numbers", "harmless if few", False),
    Issue("other_translation", "whose source occurred before with another target", "none: this is normal", False),
)
ISSUES = (*LEAKS, *ERRORS, *DUPLICATES)
"""All issues, in the order of the report."""


class Findings:
    """A flag for each pair and issue, and the first pairs with each issue as examples: number, source and target."""

    def __init__(self, pairs: int) -> None:
        self.pairs = pairs
        self.flags: dict[str, Flags] = {issue.name: np.zeros(pairs, np.bool_) for issue in ISSUES}
        self.examples: dict[str, list[tuple[int, str, str]]] = {issue.name: [] for issue in ISSUES}

    def complete(self, first: int, sources: Sequence[str], targets: Sequence[str], errors: dict[str, Flags]) -> None:
        """Add errors of consecutive pairs from number `first` on; keep the first error of each pair, and examples."""
        part = slice(first, first + len(sources))
        for name, flags in errors.items():
            self.flags[name][part] = flags
        has_error = np.zeros(len(sources), np.bool_)
        for issue in ERRORS:
            self.flags[issue.name][part] &= ~has_error
            has_error |= self.flags[issue.name][part]
        for name, examples in self.examples.items():
            for n in np.flatnonzero(self.flags[name][part])[: EXAMPLES - len(examples)]:
                examples.append((first + int(n), sources[n], targets[n]))

    def left_out(self, first: int, pairs: int) -> Flags:
        """Flags those of consecutive pairs that --out leaves out."""
        part = slice(first, first + pairs)
        return np.any([self.flags[issue.name][part] for issue in ISSUES if issue.left_out], axis=0)

    def count(self, *issues: Issue) -> int:
        """The number of pairs with these issues, of which each pair has at most one."""
        return sum(int(self.flags[issue.name].sum()) for issue in issues)


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
class ReportedIssue:
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
    """The result of a check, as `--json` prints it."""

    files: list[str]
    pairs: int
    unusable: list[str]
    """The lines that could not be read, one entry for each reason."""
    against: list[HeldOutFile]
    findings: list[ReportedIssue]
    shifts: list[ShiftedLines]
    notes: list[str]
    passing: int
    """Number of pairs that --out writes."""
    fit: bool
    verdict: str


def make_report(results: CheckResults) -> Report:
    """Count the findings, find the places of examples, and give a verdict."""
    scan, held_out, findings = results.scan, results.held_out, results.findings
    passing = int((~findings.left_out(0, len(scan))).sum())
    fit, verdict = _verdict(findings, len(scan) - passing)
    return Report(
        files=scan.names(),
        pairs=len(scan),
        unusable=scan.report.lines(),
        against=_held_out_files(scan, held_out) if held_out else [],
        findings=[_finding(issue, scan, held_out, findings) for issue in ISSUES if findings.count(issue)],
        shifts=[ShiftedLines(*scan.place(s.first), scan.place(s.end - 1)[1], s.offset) for s in results.shifts],
        notes=results.notes,
        passing=passing,
        fit=fit,
        verdict=verdict,
    )


def _verdict(findings: Findings, left_out: int) -> tuple[bool, str]:
    """Whether the corpus is fit to train on, and why not."""
    leaked, shifted, errors = findings.count(*LEAKS), findings.count(SHIFTED), findings.count(*ERRORS)
    faults = [
        *([f"text of the --against set is in {leaked:,} of its pairs"] if leaked else []),
        *([f"its sides are shifted in {shifted:,} pairs"] if shifted else []),
        *([f"{errors / findings.pairs:.0%} of its pairs are wrong"] if errors > MAX_ERRORS * findings.pairs else []),
    ]
    if faults:
        return False, f"not fit to train on: {'; '.join(faults)}"
    better = f"; better without the {left_out:,} pairs that --out leaves out" if left_out else ""
    return True, f"fit to train on{better}"


def _finding(issue: Issue, scan: CorpusScan, held_out: CorpusScan | None, findings: Findings) -> ReportedIssue:
    pairs = findings.count(issue)
    matches = _matches(issue.name, scan, held_out)
    examples = []
    for number, source, target in findings.examples[issue.name]:
        same_as = None
        if matches:
            keys, matching_keys, matching_scan = matches
            file, line = matching_scan.place(int(np.argmax(matching_keys == keys[number])) % len(matching_scan))
            same_as = f"line {line}" if matching_scan is scan and len(scan.corpus) == 1 else f"{file}, line {line}"
        examples.append(ShownExample(*scan.place(number), source, target, same_as))
    return ReportedIssue(
        issue.name, pairs, pairs / len(scan), issue.description, issue.remedy, issue.left_out, examples
    )  # fmt: skip


def _matches(issue: str, scan: CorpusScan, held_out: CorpusScan | None) -> tuple[Keys, Keys, CorpusScan] | None:
    """For an issue that is detected by keys: the keys of the corpus, the keys that they equal, and of which scan.

    Those of a side equal keys of both sides of the held-out set, the sources first.
    """
    if held_out:
        if issue == "leaked_pair":
            held_out_pairs = unordered_pair_keys(held_out.src, held_out.tgt)
            return unordered_pair_keys(scan.src, scan.tgt), held_out_pairs, held_out
        if issue in ("leaked_source", "leaked_target"):
            texts = np.concatenate([held_out.src, held_out.tgt])
            return scan.src if issue == "leaked_source" else scan.tgt, texts, held_out
    pairs = pair_keys(scan.src, scan.tgt)
    repeated = {"duplicate": scan.exact, "near_duplicate": pairs, "other_translation": scan.src}
    return (repeated[issue], repeated[issue], scan) if issue in repeated else None


def _held_out_files(scan: CorpusScan, held_out: CorpusScan) -> list[HeldOutFile]:
    texts = np.concatenate([scan.src, scan.tgt])
    leaked: Flags = np.isin(held_out.src, texts) | np.isin(held_out.tgt, texts)
    files = []
    for entry, name in enumerate(held_out.names()):
        inside = held_out.entries == entry
        files.append(HeldOutFile(name, int(inside.sum()), int(leaked[inside].sum())))
    return files


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


def _finding_lines(finding: ReportedIssue, shifts: list[ShiftedLines]) -> Iterator[str]:
    share = f"{finding.share:.2%}" if finding.share >= 0.0001 else f"{finding.share:.4%}"
    yield f"{count_pairs(finding.pairs)} ({share}) {finding.description}"
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


def _short(text: str) -> str:
    text = one_line(" ".join(text.split()))
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"

"""What was found, for programs: numbers, examples, a verdict."""

from dataclasses import dataclass

import numpy as np

from transduce.corpora.check.findings import Example, Findings
from transduce.corpora.check.kinds import KINDS, LEAKS, SHIFTED, WRONG, Kind
from transduce.corpora.check.repeats import Keys, of_pairs
from transduce.corpora.check.robust import Flags
from transduce.corpora.check.shifts import Shift
from transduce.corpora.check.survey import Survey

TOO_MANY = 0.1
"""Share of misaligned and wrong-language pairs above which a corpus is not fit to train on."""


@dataclass(frozen=True)
class Shown:
    """An example in its place, with the place of the earlier or unseen pair that it repeats."""

    file: str
    line: int
    source: str
    target: str
    same_as: str | None


@dataclass(frozen=True)
class Finding:
    """All pairs of one kind."""

    kind: str
    pairs: int
    share: float
    says: str
    remedy: str
    left_out: bool
    """Whether --output leaves such pairs out."""
    examples: list[Shown]


@dataclass(frozen=True)
class Slip:
    """A stretch of a file in which line n of the source belongs to line n + `by` of the target."""

    file: str
    first_line: int
    last_line: int
    by: int


@dataclass(frozen=True)
class Unseen:
    """A file of --against, and how many of its pairs have a side that is in the corpus."""

    file: str
    pairs: int
    leaked: int


@dataclass(frozen=True)
class Report:
    """The whole of it."""

    files: list[str]
    pairs: int
    unusable: list[str]
    """What reading left out, a line for each reason."""
    against: list[Unseen]
    findings: list[Finding]
    slips: list[Slip]
    notes: list[str]
    passing: int
    """Pairs that --output writes."""
    fit: bool
    verdict: str


def make_report(
    surveyed: Survey, unseen: Survey | None, findings: Findings, shifts: list[Shift], notes: list[str]
) -> Report:
    """Put together what the walks through a corpus have found."""
    passing = int((~findings.spoilt(0, len(surveyed))).sum())
    faults = _faults(findings)
    return Report(
        files=_names(surveyed),
        pairs=len(surveyed),
        unusable=surveyed.report.lines(),
        against=_unseen_files(surveyed, unseen) if unseen else [],
        findings=[_finding(kind, surveyed, unseen, findings) for kind in KINDS if findings.flags[kind.name].any()],
        slips=[Slip(*surveyed.place(one.first), surveyed.place(one.end - 1)[1], one.by) for one in shifts],
        notes=notes,
        passing=passing,
        fit=not faults,
        verdict=_verdict(faults, len(surveyed) - passing),
    )


def _faults(findings: Findings) -> list[str]:
    """Why a corpus is not fit to train on."""
    leaked = sum(findings.count(kind) for kind in LEAKS)
    shifted = findings.count(SHIFTED)
    wrong = sum(findings.count(kind) for kind in WRONG)
    return [
        *([f"text of the --against set is in {leaked:,} of its pairs"] if leaked else []),
        *([f"its sides have slipped in {shifted:,} pairs"] if shifted else []),
        *([f"{wrong / findings.pairs:.0%} of its pairs are wrong"] if wrong > TOO_MANY * findings.pairs else []),
    ]


def _verdict(faults: list[str], spoilt: int) -> str:
    if faults:
        return f"not fit to train on: {'; '.join(faults)}"
    if spoilt:
        return f"fit to train on; better without the {spoilt:,} pairs that --output leaves out"
    return "fit to train on"


def _finding(kind: Kind, surveyed: Survey, unseen: Survey | None, findings: Findings) -> Finding:
    pairs = findings.count(kind)
    twins = _twins(kind.name, surveyed, unseen)
    return Finding(
        kind=kind.name,
        pairs=pairs,
        share=pairs / len(surveyed),
        says=kind.says,
        remedy=kind.remedy,
        left_out=kind.spoils,
        examples=[_shown(example, surveyed, twins) for example in findings.examples[kind.name]],
    )


def _shown(example: Example, surveyed: Survey, twins: tuple[Keys, Keys, Survey] | None) -> Shown:
    same_as = None
    if twins:
        own, others, of = twins
        file, line = of.place(int(np.argmax(others == own[example.number])))
        same_as = f"line {line}" if of is surveyed and len(surveyed.corpus) == 1 else f"{file}, line {line}"
    return Shown(*surveyed.place(example.number), example.source, example.target, same_as)


def _twins(kind: str, surveyed: Survey, unseen: Survey | None) -> tuple[Keys, Keys, Survey] | None:
    """The keys of a corpus by which pairs of this kind were found, the keys they equal, and whose these are."""
    pairs = of_pairs(surveyed.src, surveyed.tgt)
    if unseen:
        if kind == "leaked_pair":
            return pairs, of_pairs(unseen.src, unseen.tgt), unseen
        if kind == "leaked_source":
            return surveyed.src, unseen.src, unseen
        if kind == "leaked_target":
            return surveyed.tgt, unseen.tgt, unseen
    repeated = {"duplicate": surveyed.exact, "near_duplicate": pairs, "other_translation": surveyed.src}
    return (repeated[kind], repeated[kind], surveyed) if kind in repeated else None


def _unseen_files(surveyed: Survey, unseen: Survey) -> list[Unseen]:
    leaked: Flags = np.isin(unseen.src, surveyed.src) | np.isin(unseen.tgt, surveyed.tgt)
    files = []
    for entry, name in enumerate(_names(unseen)):
        inside = unseen.entries == entry
        files.append(Unseen(name, int(inside.sum()), int(leaked[inside].sum())))
    return files


def _names(surveyed: Survey) -> list[str]:
    return [" + ".join(files) for files in surveyed.corpus]

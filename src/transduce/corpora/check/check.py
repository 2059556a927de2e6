"""`check`: two walks through a corpus, one to learn what it is like, one to judge its pairs."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from transduce.corpora.check.findings import Findings
from transduce.corpora.check.judge import ENOUGH, Judge
from transduce.corpora.check.lengths import IMPROBABLE, LengthModel
from transduce.corpora.check.repeats import came_before, find_leaks, of_pairs
from transduce.corpora.check.report import Report, make_report
from transduce.corpora.check.shifts import Shift, find_shifts
from transduce.corpora.check.survey import Survey, survey
from transduce.errors import DataError
from transduce.text.pairs import Corpus, PlacedPair, ReadReport, pair_writer, read_placed_pairs

_AT_ONCE = 5_000  # pairs that are judged together


@dataclass(frozen=True)
class Examined:
    """All that two walks through a corpus have shown."""

    surveyed: Survey
    unseen: Survey | None
    findings: Findings
    shifts: list[Shift]
    notes: list[str]


def check(corpus: Corpus, unseen: Corpus, output: Path | None, say: Callable[[str], None]) -> Report:
    """Look for what spoils a corpus; write the pairs that pass to `output`, if one is named.

    `unseen` is the text that must not be in the corpus, as models are judged by it.
    """
    seen = examine(corpus, unseen, output, say)
    return make_report(seen.surveyed, seen.unseen, seen.findings, seen.shifts, seen.notes)


def examine(corpus: Corpus, unseen: Corpus, output: Path | None, say: Callable[[str], None]) -> Examined:
    """The same with a flag for every pair instead of a report."""
    _refuse_pipes(corpus)
    with pair_writer(output) if output else nullcontext() as write:
        say("data: reading " + ", ".join(" + ".join(files) for files in (*corpus, *unseen)))
        surveyed = survey(corpus)
        kept_out = survey(unseen) if unseen else None
        findings = Findings(len(surveyed))
        _find_repeats(surveyed, kept_out, findings)
        shifts = _find_by_lengths(surveyed, findings)
        notes = _find_by_text(surveyed, findings, write, say)
    return Examined(surveyed, kept_out, findings, shifts, notes)


def _refuse_pipes(corpus: Corpus) -> None:
    for name in (name for files in corpus for name in files):
        if name == "-" or Path(name).is_fifo():
            raise DataError(f"{name}: the text is read twice, so it cannot come from a pipe; give a file")


def _find_repeats(surveyed: Survey, unseen: Survey | None, findings: Findings) -> None:
    flags = findings.flags
    both = of_pairs(surveyed.src, surveyed.tgt)
    flags["duplicate"] = came_before(surveyed.exact)
    flags["near_duplicate"] = came_before(both) & ~flags["duplicate"]
    flags["other_translation"] = came_before(surveyed.src) & ~came_before(both)
    if unseen:
        leaks = find_leaks(surveyed.src, surveyed.tgt, unseen.src, unseen.tgt)
        flags["leaked_pair"], flags["leaked_source"], flags["leaked_target"] = leaks


def _find_by_lengths(surveyed: Survey, findings: Findings) -> list[Shift]:
    """Flag what the lengths show; the shifts, by which each file has slipped."""
    if len(surveyed) < ENOUGH:
        return []
    src, tgt = surveyed.src_lengths, surveyed.tgt_lengths
    model = LengthModel.fit(src, tgt)
    findings.flags["length"] = np.abs(model.deviations(src, tgt)) > IMPROBABLE
    shifts: list[Shift] = []
    for entry in range(len(surveyed.corpus)):
        first, end = np.searchsorted(surveyed.entries, [entry, entry + 1])
        shifts += [shift.moved(int(first)) for shift in find_shifts(src[first:end], tgt[first:end], model)]
    for shift in shifts:
        findings.flags["shifted"][shift.first : shift.end] = True
    return shifts


def _find_by_text(
    surveyed: Survey, findings: Findings, write: Callable[[str, str], None] | None, say: Callable[[str], None]
) -> list[str]:
    """Flag what the text shows, and write what has no flag; how sure the checks are."""
    say(f"data: learning from {len(surveyed.sample):,} of {len(surveyed):,} pairs")
    judge = Judge([pair for pair in surveyed.sample if not findings.flags["shifted"][pair[0]]])
    say(f"data: judging {len(surveyed):,} pairs")
    for first, pairs in _chunks(surveyed):
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        findings.complete(first, sources, targets, judge.wrong(first, sources, targets))
        if write:
            for n in np.flatnonzero(~findings.spoilt(first, len(pairs))):
                write(sources[n], targets[n])
    return judge.notes


def _chunks(surveyed: Survey) -> Iterator[tuple[int, list[PlacedPair]]]:
    """The corpus once more, in parts, each with the number of its first pair."""
    pairs, first = read_placed_pairs(surveyed.corpus, ReadReport()), 0
    while chunk := list(islice(pairs, _AT_ONCE)):
        if first + len(chunk) <= len(surveyed):
            yield first, chunk
        first += len(chunk)
    if first != len(surveyed):
        names = ", ".join(" + ".join(files) for files in surveyed.corpus)
        raise DataError(f"{names}: changed while it was being read; run the same command again")

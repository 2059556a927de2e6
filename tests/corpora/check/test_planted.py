"""Errors planted into the demo corpus are detected, each under its name, with few false positives."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.corpora.check.check import examine
from transduce.corpora.check.report import Report, make_report
from transduce.corpora.demo.corpus import DemoCorpus
from transduce.errors import DataError
from transduce.files.pairs import Pair

EVERY = 40
"""An error is planted into one in this many pairs."""
SYLLABLES = ["quo", "usq", "tand", "abu", "tere", "cati", "pa", "nos", "tra", "furor", "elud", "que", "aud", "ac"]


def write(path: Path, pairs: list[Pair]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def run(folder: Path, pairs: list[Pair], held_out: list[Pair] | None = None, output: Path | None = None) -> Report:
    against = [(str(write(folder / "held_out.tsv", held_out)),)] if held_out else []
    return make_report(examine([(str(write(folder / "train.tsv", pairs)),)], against, output, lambda _: None))


def counts(report: Report) -> dict[str, int]:
    return {finding.issue: finding.pairs for finding in report.findings}


def long(text: str) -> bool:
    return len(text) > 25


def foreign(length: int) -> str:
    """A text of this length in an invented language."""
    rng = random.Random(length)
    words = ["".join(rng.choices(SYLLABLES, k=2)) + "um" for _ in range(length)]
    return " ".join(words)[:length]


def swapped(pair: Pair, _: Pair) -> Pair:
    return pair[1], pair[0]


PLANT: dict[str, Callable[[Pair, Pair], Pair]] = {
    "swapped": swapped,
    "copied": lambda pair, _: (pair[0], pair[0]),
    "source_in_target_language": lambda pair, other: (other[1], pair[1]),
    "target_in_source_language": lambda pair, other: (pair[0], other[0]),
    "foreign_source": lambda pair, _: (foreign(len(pair[0])), pair[1]),
    "foreign_target": lambda pair, _: (pair[0], foreign(len(pair[1]))),
    "length": lambda pair, _: (pair[0], 3 * pair[1]),
    "unrelated": lambda pair, other: (pair[0], other[1]),
}


def test_no_error_is_found_in_the_clean_corpus(tmp_path: Path, demo: DemoCorpus) -> None:
    report = run(tmp_path, demo.train, demo.valid)
    assert sum(finding.pairs for finding in report.findings if finding.left_out) <= 4
    assert report.fit
    assert report.against[0].leaked == 0


@pytest.mark.parametrize("issue", PLANT)
def test_a_planted_error_is_found(tmp_path: Path, demo: DemoCorpus, issue: str) -> None:
    rng = random.Random(1)
    pairs = list(demo.train)
    planted = [n for n in range(0, len(pairs), EVERY) if long(pairs[n][0])]
    for n in planted:
        pairs[n] = PLANT[issue](pairs[n], rng.choice([other for other in demo.train[:500] if long(other[0])]))
    output = tmp_path / "clean.tsv"
    report = run(tmp_path, pairs, output=output)
    assert counts(report)[issue] >= 0.6 * len(planted), counts(report)
    left = output.read_text(encoding="utf-8").splitlines()
    assert report.passing == len(left)
    rows = [f"{source}\t{target}" for source, target in pairs]
    kept = set(left)
    missed = [n for n in planted if rows[n] in kept]
    false_positives = [row for n, row in enumerate(rows) if row not in kept and n not in planted]
    assert len(missed) <= 0.2 * len(planted), (len(missed), len(planted))
    assert len(false_positives) <= 6, false_positives
    assert left == [row for row in rows if row in kept]


@pytest.mark.parametrize("offset", [1, -3])
def test_a_shift_is_found_and_reported(tmp_path: Path, demo: DemoCorpus, offset: int) -> None:
    targets = [target for _, target in demo.train]
    targets[2500:] = (
        targets[2500 - offset : len(targets) - offset] if offset < 0 else ["Und noch ein Satz.", *targets[2500:-1]]
    )
    pairs = [(pair[0], target) for pair, target in zip(demo.train, targets[: len(demo.train)], strict=False)]
    report = run(tmp_path, pairs)
    (shift,) = report.shifts
    assert shift.offset == offset
    assert abs(shift.first_line - 2500) <= 25
    assert abs(shift.last_line - len(pairs)) <= 25
    assert not report.fit


def test_leaks_and_duplicates_are_found_at_their_places(tmp_path: Path, demo: DemoCorpus) -> None:
    (a, b), (c, _), (_, f) = demo.valid[:3]
    first = demo.train[0]
    planted = [(a.upper(), f"„{b}“"), (c, first[1]), (first[0], f), first, (first[0] + "!", first[1])]
    report = run(tmp_path, [*demo.train, *planted], demo.valid, tmp_path / "clean.tsv")
    findings = {finding.issue: finding for finding in report.findings}
    end = len(demo.train)
    for issue, offset, same_as in (
        ("leaked_pair", 1, f"{tmp_path}/held_out.tsv, line 1"),
        ("leaked_source", 2, f"{tmp_path}/held_out.tsv, line 2"),
        ("leaked_target", 3, f"{tmp_path}/held_out.tsv, line 3"),
        ("duplicate", 4, "line 1"),
        ("near_duplicate", 5, "line 1"),
    ):
        (example,) = findings[issue].examples
        assert (issue, example.line, example.same_as) == (issue, end + offset, same_as)
    assert findings["other_translation"].pairs == 1
    assert report.against[0].leaked == 3
    assert not report.fit
    left = (tmp_path / "clean.tsv").read_text(encoding="utf-8").splitlines()
    assert left[-1] == "\t".join(planted[-1])
    assert len(left) == report.passing


@pytest.mark.parametrize("pairs", [600, 1000, 1001])
def test_words_are_checked_in_small_corpora(tmp_path: Path, demo: DemoCorpus, pairs: int) -> None:
    report = run(tmp_path, demo.train[:pairs])
    (share,) = (int(percent) for note in report.notes for percent in re.findall(r"(\d+)% of random pairings", note))
    assert share > 70


def test_words_are_not_checked_if_they_cannot_be_learned(tmp_path: Path) -> None:
    rng = random.Random(1)
    letters = "abcdefghijklm"
    pairs = [
        tuple(" ".join("".join(rng.choices(letters, k=5)) for _ in range(6)) for _ in range(2)) for _ in range(600)
    ]
    report = run(tmp_path, pairs)  # type: ignore[arg-type]
    assert "unrelated" not in counts(report)
    assert "words were not checked" in report.notes[0]


def test_many_wrong_pairs_make_a_corpus_unfit(tmp_path: Path, demo: DemoCorpus) -> None:
    pairs = [swapped(pair, pair) if n % 5 == 0 else pair for n, pair in enumerate(demo.train)]
    report = run(tmp_path, pairs)
    assert counts(report)["swapped"] > 0.9 * len(pairs) / 5
    assert report.verdict.startswith("not fit to train on: ")


@pytest.mark.parametrize("pairs_then", [600, 800])
def test_text_that_changes_between_the_passes_is_an_error(tmp_path: Path, demo: DemoCorpus, pairs_then: int) -> None:
    path = write(tmp_path / "train.tsv", demo.train[:700])

    def change(line: str) -> None:
        if line.startswith("data: checking"):
            write(path, demo.train[:pairs_then])

    with pytest.raises(DataError, match="changed while it was being read"):
        examine([(str(path),)], [], tmp_path / "clean.tsv", change)
    assert not (tmp_path / "clean.tsv").exists()

"""Errors planted into the demo corpus are found, each under its name, and nothing else is."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.corpora.check.check import check
from transduce.corpora.check.report import Report
from transduce.corpora.demo import DemoCorpus
from transduce.errors import DataError
from transduce.text.pairs import Pair

EVERY = 40
"""One in so many pairs is spoilt."""
SYLLABLES = ["quo", "usq", "tand", "abu", "tere", "cati", "pa", "nos", "tra", "furor", "elud", "que", "aud", "ac"]


def write(path: Path, pairs: list[Pair]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def run(folder: Path, pairs: list[Pair], unseen: list[Pair] | None = None, output: Path | None = None) -> Report:
    against = [(str(write(folder / "unseen.tsv", unseen)),)] if unseen else []
    return check([(str(write(folder / "train.tsv", pairs)),)], against, output, lambda _: None)


def counts(report: Report) -> dict[str, int]:
    return {finding.kind: finding.pairs for finding in report.findings}


def long(text: str) -> bool:
    return len(text) > 25


def foreign(length: int) -> str:
    """A text of this length in a language of its own."""
    chance = random.Random(length)
    words = ["".join(chance.choices(SYLLABLES, k=2)) + "um" for _ in range(length)]
    return " ".join(words)[:length]


def turned(pair: Pair, _: Pair) -> Pair:
    return pair[1], pair[0]


SPOIL: dict[str, Callable[[Pair, Pair], Pair]] = {
    "swapped": turned,
    "copied": lambda pair, _: (pair[0], pair[0]),
    "source_in_target_language": lambda pair, other: (other[1], pair[1]),
    "target_in_source_language": lambda pair, other: (pair[0], other[0]),
    "foreign_source": lambda pair, _: (foreign(len(pair[0])), pair[1]),
    "foreign_target": lambda pair, _: (pair[0], foreign(len(pair[1]))),
    "length": lambda pair, _: (pair[0], 3 * pair[1]),
    "unrelated": lambda pair, other: (pair[0], other[1]),
}


def test_the_clean_corpus_is_clean(tmp_path: Path, demo: DemoCorpus) -> None:
    report = run(tmp_path, demo.train, demo.valid)
    assert sum(finding.pairs for finding in report.findings if finding.left_out) <= 4
    assert report.fit
    assert report.against[0].leaked == 0


@pytest.mark.parametrize("kind", SPOIL)
def test_a_planted_kind_is_found(tmp_path: Path, demo: DemoCorpus, kind: str) -> None:
    chance = random.Random(1)
    pairs = list(demo.train)
    spoilt = [n for n in range(0, len(pairs), EVERY) if long(pairs[n][0])]
    for n in spoilt:
        pairs[n] = SPOIL[kind](pairs[n], chance.choice([other for other in demo.train[:500] if long(other[0])]))
    output = tmp_path / "clean.tsv"
    report = run(tmp_path, pairs, output=output)
    assert counts(report)[kind] >= 0.6 * len(spoilt), counts(report)
    left = output.read_text(encoding="utf-8").splitlines()
    assert report.passing == len(left)
    rows = [f"{source}\t{target}" for source, target in pairs]
    kept = set(left)
    missed = [n for n in spoilt if rows[n] in kept]
    wronged = [row for n, row in enumerate(rows) if row not in kept and n not in spoilt]
    assert len(missed) <= 0.2 * len(spoilt), (len(missed), len(spoilt))
    assert len(wronged) <= 6, wronged
    assert left == [row for row in rows if row in kept]


@pytest.mark.parametrize("by", [1, -3])
def test_a_shift_is_found_and_said(tmp_path: Path, demo: DemoCorpus, by: int) -> None:
    targets = [target for _, target in demo.train]
    targets[2500:] = targets[2500 - by : len(targets) - by] if by < 0 else ["Und noch ein Satz.", *targets[2500:-1]]
    pairs = [(pair[0], target) for pair, target in zip(demo.train, targets[: len(demo.train)], strict=False)]
    report = run(tmp_path, pairs)
    (slip,) = report.slips
    assert slip.by == by
    assert abs(slip.first_line - 2500) <= 25
    assert abs(slip.last_line - len(pairs)) <= 25
    assert not report.fit


def test_leaks_and_repeats_are_found_where_they_are(tmp_path: Path, demo: DemoCorpus) -> None:
    (a, b), (c, _), (_, f) = demo.valid[:3]
    first = demo.train[0]
    planted = [(a.upper(), f"„{b}“"), (c, first[1]), (first[0], f), first, (first[0] + "!", first[1])]
    report = run(tmp_path, [*demo.train, *planted], demo.valid, tmp_path / "clean.tsv")
    found = {finding.kind: finding for finding in report.findings}
    end = len(demo.train)
    for kind, offset, same_as in (
        ("leaked_pair", 1, f"{tmp_path}/unseen.tsv, line 1"),
        ("leaked_source", 2, f"{tmp_path}/unseen.tsv, line 2"),
        ("leaked_target", 3, f"{tmp_path}/unseen.tsv, line 3"),
        ("duplicate", 4, "line 1"),
        ("near_duplicate", 5, "line 1"),
    ):
        (example,) = found[kind].examples
        assert (kind, example.line, example.same_as) == (kind, end + offset, same_as)
    assert found["other_translation"].pairs == 1
    assert report.against[0].leaked == 3
    assert not report.fit
    left = (tmp_path / "clean.tsv").read_text(encoding="utf-8").splitlines()
    assert left[-1] == "\t".join(planted[-1])
    assert len(left) == report.passing


@pytest.mark.parametrize("pairs", [600, 1000, 1001])
def test_words_are_judged_in_small_corpora_too(tmp_path: Path, demo: DemoCorpus, pairs: int) -> None:
    report = run(tmp_path, demo.train[:pairs])
    (share,) = (int(percent) for note in report.notes for percent in re.findall(r"(\d+)% are noticed", note))
    assert share > 70


def test_where_words_cannot_be_learnt_they_are_not_judged(tmp_path: Path) -> None:
    chance = random.Random(1)
    letters = "abcdefghijklm"
    pairs = [
        tuple(" ".join("".join(chance.choices(letters, k=5)) for _ in range(6)) for _ in range(2)) for _ in range(600)
    ]
    report = run(tmp_path, pairs)  # type: ignore[arg-type]
    assert "unrelated" not in counts(report)
    assert "words were not checked" in report.notes[0]


def test_many_wrong_pairs_make_a_corpus_unfit(tmp_path: Path, demo: DemoCorpus) -> None:
    pairs = [turned(pair, pair) if n % 5 == 0 else pair for n, pair in enumerate(demo.train)]
    report = run(tmp_path, pairs)
    assert counts(report)["swapped"] > 0.9 * len(pairs) / 5
    assert report.verdict.startswith("not fit to train on: ")


@pytest.mark.parametrize("pairs_then", [600, 800])
def test_text_that_changes_meanwhile_is_noticed(tmp_path: Path, demo: DemoCorpus, pairs_then: int) -> None:
    path = write(tmp_path / "train.tsv", demo.train[:700])

    def change(line: str) -> None:
        if line.startswith("data: judging"):
            write(path, demo.train[:pairs_then])

    with pytest.raises(DataError, match="changed while it was being read"):
        check([(str(path),)], [], tmp_path / "clean.tsv", change)
    assert not (tmp_path / "clean.tsv").exists()

"""Pairs of sentences from two files, TSV or JSONL, with a report of every line left out."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from transduce.errors import ConfigError, DataError
from transduce.text.files import COMPRESSIONS, MAX_LINE_BYTES, raw_lines

Pair = tuple[str, str]
Corpus = Sequence[tuple[str, ...]]
"""Files of pairs: each entry is one file that holds both sides (.tsv or .jsonl) or two files with one side each."""


class PlacedPair(NamedTuple):
    """A pair, and where it stands: the line of an entry of the corpus."""

    source: str
    target: str
    entry: int
    line: int


JSONL = (".jsonl", ".ndjson")

# The ways a line can be unusable, as the report words them.
BAD_UTF8 = "not UTF-8"
NUL = "with a NUL byte"
EMPTY = "with an empty side"
OVERLONG = f"longer than {MAX_LINE_BYTES:,} bytes"
ONE_SIDED = "without a tab"
BAD_JSON = 'not a JSON object with texts "src" and "tgt"'


@dataclass
class ReadReport:
    """How many pairs were read, and what was left out, where first and how often."""

    pairs: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def note(self, problem: str, file: str, line: int) -> None:
        """Count one line left out."""
        self.left_out[problem] = self.left_out.get(problem, 0) + 1
        self.first.setdefault(problem, f"{file}, line {line}")

    def lines(self) -> list[str]:
        """One line of text per kind of problem."""
        return [
            f"left out {count:,} {'pair' if count == 1 else 'pairs'} {problem} (first: {self.first[problem]})"
            for problem, count in self.left_out.items()
        ]


def corpus_of(
    both: Sequence[str | Path], sources: Sequence[str | Path], targets: Sequence[str | Path], key: str
) -> list[tuple[str, ...]]:
    """A corpus of files that hold both sides and of source files, each with its target file."""
    if len(sources) != len(targets):
        raise ConfigError(
            f"{key}: {len(sources)} source files but {len(targets)} target files; give one target for each source"
        )
    return [*((str(path),) for path in both), *((str(a), str(b)) for a, b in zip(sources, targets, strict=True))]


def read_pairs(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[Pair]:
    """The usable (source, target) pairs of a corpus, in order, as `read_placed_pairs` finds them."""
    for source, target, _, _ in read_placed_pairs(corpus, report):
        yield (target, source) if reverse else (source, target)


def read_placed_pairs(corpus: Corpus, report: ReadReport) -> Iterator[PlacedPair]:
    """The usable pairs of a corpus, in order, with their places.

    Any file may be compressed. Unusable lines are left out on both sides and noted in the report.
    """
    for entry, files in enumerate(corpus):
        for line, (source, target) in _entry_pairs(files, report):
            report.pairs += 1
            yield PlacedPair(source, target, entry, line)
    if report.pairs == 0:
        names = ", ".join(" + ".join(files) for files in corpus)
        raise DataError("; ".join([f"{names}: no usable sentence pair", *report.lines()]))


def _entry_pairs(files: tuple[str, ...], report: ReadReport) -> Iterator[tuple[int, Pair]]:
    if len(files) == 2:
        return _from_two_files(*files, report)
    if len(files) != 1:
        raise DataError(f"{', '.join(files)}: a corpus entry is one file or a pair of files, not {len(files)}")
    kind = kind_of(Path(files[0]))
    if kind == ".tsv":
        return _from_tsv(files[0], report)
    if kind in JSONL:
        return _from_jsonl(files[0], report)
    raise DataError(
        f"{files[0]}: cannot tell its format; end its name in .tsv (source, tab, target) or .jsonl, "
        "or give a source file and a target file"
    )


def kind_of(path: Path) -> str:
    """The ending that says how a file holds its text, less that of its compression."""
    return path.with_suffix("").suffix if path.suffix in COMPRESSIONS else path.suffix


def endings(files: tuple[str, ...]) -> list[str]:
    """What of the names of an entry decides how it is read: compression and, where one file holds both sides, kind."""
    kind = [kind_of(Path(files[0]))] if len(files) == 1 else []
    return [*kind, *(Path(name).suffix if Path(name).suffix in COMPRESSIONS else "" for name in files)]


def _from_two_files(src: str, tgt: str, report: ReadReport) -> Iterator[tuple[int, Pair]]:
    end = object()
    lines = zip_longest(raw_lines(Path(src)), raw_lines(Path(tgt)), fillvalue=end)
    for number, (src_raw, tgt_raw) in enumerate(lines, start=1):
        if src_raw is end or tgt_raw is end:
            more = number + sum(1 for _ in lines)
            src_count, tgt_count = (number - 1, more) if src_raw is end else (more, number - 1)
            raise DataError(
                f"{src} has {src_count:,} lines and {tgt} has {tgt_count:,}: line n of one must translate "
                "line n of the other; find where they part before training"
            )
        source, target = _text(src_raw), _text(tgt_raw)  # type: ignore[arg-type]
        if problem := source.problem:
            report.note(problem, src, number)
        elif problem := target.problem:
            report.note(problem, tgt, number)
        else:
            yield number, (source.text, target.text)


def _from_tsv(name: str, report: ReadReport) -> Iterator[tuple[int, Pair]]:
    for number, raw in enumerate(raw_lines(Path(name)), start=1):
        columns = [raw] if raw is None else raw.split(b"\t")
        sides = [_text(column) for column in columns[:2]]
        problem = next((side.problem for side in sides if side.problem), "")
        if len(sides) < 2 and problem in ("", EMPTY):
            problem = ONE_SIDED if columns[0] else EMPTY
        if problem:
            report.note(problem, name, number)
        else:
            yield number, (sides[0].text, sides[1].text)


def _from_jsonl(name: str, report: ReadReport) -> Iterator[tuple[int, Pair]]:
    for number, raw in enumerate(raw_lines(Path(name)), start=1):
        line = _text(raw)
        sides = [line] if line.problem else _json_sides(line.text)
        if problem := next((side.problem for side in sides if side.problem), ""):
            report.note(problem, name, number)
        else:
            yield number, (sides[0].text, sides[1].text)


def _json_sides(line: str) -> "list[_Side]":
    try:
        record = json.loads(line)
        return [_text(record[key].encode()) for key in ("src", "tgt")]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return [_Side(problem=BAD_JSON)]


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a pair: its text, or the problem that rules it out."""

    text: str = ""
    problem: str = ""


def _text(raw: bytes | None) -> _Side:
    if raw is None:
        return _Side(problem=OVERLONG)
    if b"\0" in raw:
        return _Side(problem=NUL)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return _Side(problem=BAD_UTF8)
    return _Side(text=text) if text and not text.isspace() else _Side(problem=EMPTY)

"""Read and write sentence pairs: from two parallel files or from one file of any format in the table.

Every line that is left out is counted in a report.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from transduce.errors import ConfigError, DataError
from transduce.files.files import COMPRESSIONS, raw_lines, text_writer
from transduce.files.pair_formats import Pair as Pair
from transduce.files.pair_formats import (
    UnusableError,
    decode,
    format_of,
    format_suffix,
    require_one_side,
    written_format,
)

Corpus = Sequence[tuple[str, ...]]
"""Files of pairs: each entry is one file that holds both sides or two files with one side each."""


class PlacedPair(NamedTuple):
    """A pair with its place: a line of an entry of the corpus."""

    source: str
    target: str
    entry: int
    line: int


@dataclass
class ReadReport:
    """The number of pairs that were read and, for each problem, how many were left out."""

    pairs: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    """The number of lines left out, by problem."""
    first: dict[str, str] = field(default_factory=dict)
    """File and line of the first one, by problem."""
    noun: str = "pair"
    """What is counted: pairs or documents."""

    def note(self, problem: str, file: str, line: int) -> None:
        self.left_out[problem] = self.left_out.get(problem, 0) + 1
        self.first.setdefault(problem, f"{file}, line {line}")

    def add(self, other: "ReadReport") -> None:
        """Add the counts of another report, of text that was read after this one's."""
        self.noun = other.noun if other.pairs or other.left_out else self.noun
        self.pairs += other.pairs
        for problem, count in other.left_out.items():
            self.left_out[problem] = self.left_out.get(problem, 0) + count
            self.first.setdefault(problem, other.first[problem])

    def lines(self) -> list[str]:
        return [
            f"left out {count_pairs(count, self.noun)} {problem} (first: {self.first[problem]})"
            for problem, count in self.left_out.items()
        ]


def count_pairs(count: int, noun: str = "pair") -> str:
    """A number of pairs, or of other things, for messages: "1 pair", "2,000 pairs"."""
    return f"{count:,} {noun if count == 1 else f'{noun}s'}"


def corpus_of(
    both: Sequence[str | Path], sources: Sequence[str | Path], targets: Sequence[str | Path], key: str
) -> list[tuple[str, ...]]:
    """Make a corpus of files that hold both sides and of source files, each with its target file.

    `key` names the setting or option in the error message.
    """
    if len(sources) != len(targets):
        raise ConfigError(
            f"{key}: {len(sources)} source files but {len(targets)} target files; give one target for each source"
        )
    return [*((str(path),) for path in both), *((str(a), str(b)) for a, b in zip(sources, targets, strict=True))]


def read_pairs(corpus: Corpus, report: ReadReport, *, reverse: bool = False, context: bool = False) -> Iterator[Pair]:
    """Yield the usable (source, target) pairs of a corpus in order; with `reverse`, (target, source).

    With `context`, a source has the one of the line before it above it, as a line of its own (`split_context`). A line
    that is left out, for example an empty one between two documents, is not followed by a source with a context.
    """
    before, place = "", (-1, 0)
    for source, target, entry, line in read_placed_pairs(corpus, report):
        if reverse:
            source, target = target, source
        if not context:
            yield source, target
            continue
        source = source.replace("\n", " ")
        yield f"{before}\n{source}" if place == (entry, line - 1) else source, target
        before, place = source, (entry, line)


def split_context(sources: Sequence[str]) -> tuple[list[str], list[str]]:
    """The contexts of sources that were read with them, empty for those without one, and their texts."""
    split = [source.rpartition("\n") for source in sources]
    return [before for before, _, _ in split], [text for _, _, text in split]


def read_placed_pairs(corpus: Corpus, report: ReadReport) -> Iterator[PlacedPair]:
    """Yield the usable pairs of a corpus in order, with their places.

    Any file may be compressed. An unusable line is left out on both sides and counted in the report.
    """
    for entry, files in enumerate(corpus):
        for line, (source, target) in _entry_pairs(files, report):
            report.pairs += 1
            yield PlacedPair(source, target, entry, line)
    require_usable(corpus, report, "usable sentence pair")


def require_usable(corpus: Corpus, report: ReadReport, noun: str) -> None:
    """Raise an error if nothing was read."""
    if report.pairs == 0:
        names = ", ".join(" + ".join(files) for files in corpus)
        raise DataError("; ".join([f"{names}: no {noun}", *report.lines()]))


@contextmanager
def pair_writer(path: Path) -> Iterator[Callable[[str, str], None]]:
    """Give a function that writes one pair, in the format and compression that the file's name tells.

    The file appears, complete, when the block ends without an error.
    """
    pair_format = written_format(path)
    if pair_format.create:
        with pair_format.create(path) as add:
            yield add
        return
    row = pair_format.write
    assert row
    with text_writer(path) as write:
        yield lambda source, target: write(row(source, target))


def entry_suffixes(files: tuple[str, ...]) -> list[str]:
    """The suffixes that decide how an entry is read: that of its format, if it is one file, and of compressions."""
    suffix = [format_suffix(Path(files[0]))] if len(files) == 1 else []
    return [*suffix, *(Path(name).suffix if Path(name).suffix in COMPRESSIONS else "" for name in files)]


def _entry_pairs(files: tuple[str, ...], report: ReadReport) -> Iterator[tuple[int, Pair]]:
    if len(files) == 2:
        for name in files:
            require_one_side(Path(name))
        yield from _from_two_files(*files, report)
    elif len(files) == 1:
        path = Path(files[0])
        for line, pair in format_of(path, ", or give a source file and a target file").read(path):
            if isinstance(pair, UnusableError):
                report.note(str(pair), files[0], line)
            else:
                yield line, pair
    else:
        raise DataError(f"{', '.join(files)}: a corpus entry is one file or a pair of files, not {len(files)}")


def _from_two_files(src: str, tgt: str, report: ReadReport) -> Iterator[tuple[int, Pair]]:
    end = object()
    lines = zip_longest(raw_lines(Path(src)), raw_lines(Path(tgt)), fillvalue=end)
    for number, (src_raw, tgt_raw) in enumerate(lines, start=1):
        if src_raw is end or tgt_raw is end:
            more = number + sum(1 for _ in lines)
            src_count, tgt_count = (number - 1, more) if src_raw is end else (more, number - 1)
            raise DataError(
                f"{src} has {src_count:,} lines and {tgt} has {tgt_count:,}: line n of one must translate "
                "line n of the other; find the first misaligned line"
            )
        name = src
        try:
            source, name = decode(src_raw), tgt  # type: ignore[arg-type]
            target = decode(tgt_raw)  # type: ignore[arg-type]
        except UnusableError as problem:
            report.note(str(problem), name, number)
        else:
            yield number, (source, target)


T = TypeVar("T")


class Reservoir(Generic[T]):
    """Reservoir sampling: keeps `size` of the items that it is offered, all with the same probability.

    The random seed is fixed.
    """

    def __init__(self, size: int) -> None:
        self.kept: list[T] = []
        self._size, self._offered = size, 0
        self._rng = random.Random(1)

    def offer(self, item: T) -> None:
        self._offered += 1
        if len(self.kept) < self._size:
            self.kept.append(item)
        elif (index := self._rng.randrange(self._offered)) < self._size:
            self.kept[index] = item

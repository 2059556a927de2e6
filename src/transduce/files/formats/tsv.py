"""TSV: source, tab, target on each line; further columns are ignored, and so is a first line that names the columns."""

import re
from collections.abc import Iterator
from pathlib import Path

from transduce.files.formats.pair_format import OVERLONG, Pair, PairFormat, UnusableError, decode, line_reader
from transduce.files.languages import LANGUAGES, direction_of_entry

NO_TAB = "without a tab"
HEADER = "with names of columns in place of texts"
_SIDES = frozenset({"source", "src", "input", "original", "term", "target", "tgt", "trg", "output", "translation"})
_LANGUAGE_NAMES = frozenset(name.lower() for name in LANGUAGES.values())
_NOT_IN_A_COLUMN = re.compile(r"[\t\r\n]+")


def parse_row(line: bytes | None) -> Pair:
    """The first two columns of a line, or raise `UnusableError`; None stands for an overlong line."""
    if line is None:
        raise UnusableError(OVERLONG)
    source, *others = (decode(column) for column in line.split(b"\t", 2)[:2])
    if not others:
        raise UnusableError(NO_TAB)
    return source, others[0]


def _read(path: Path) -> Iterator[tuple[int, Pair | str]]:
    for number, pair in line_reader(parse_row)(path):
        yield number, HEADER if number == 1 and not isinstance(pair, str) and is_header(pair, path) else pair


def is_header(pair: Pair, path: Path) -> bool:
    """Whether a pair names the columns: two sides, or two languages, and is no translation of a short word.

    Language codes may be words: "it" is "es" in German. They count if one is "en", or if the file's name has them too.
    """
    names = {column.strip().lower() for column in pair}
    if len(names) == 1:
        return False
    by_code = names <= LANGUAGES.keys() and ("en" in names or {*(direction_of_entry([str(path)]) or ())} == names)
    return by_code or names <= _SIDES or names <= _LANGUAGE_NAMES


def _row(source: str, target: str) -> str:
    """Write a pair as a line; characters that would end a column or a line become a space."""
    return "\t".join(_NOT_IN_A_COLUMN.sub(" ", side) for side in (source, target)) + "\n"


TSV = PairFormat((".tsv",), _read, _row)

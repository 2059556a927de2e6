"""TSV: source, tab, target on each line; further columns are ignored."""

import re

from transduce.text.formats.pair_format import OVERLONG, Pair, PairFormat, UnusableError, decode, line_reader

NO_TAB = "without a tab"
_NOT_IN_A_COLUMN = re.compile(r"[\t\r\n]+")


def parse_row(line: bytes | None) -> Pair:
    """The first two columns of a line, or raise `UnusableError`; None stands for an overlong line."""
    if line is None:
        raise UnusableError(OVERLONG)
    source, *others = (decode(column) for column in line.split(b"\t", 2)[:2])
    if not others:
        raise UnusableError(NO_TAB)
    return source, others[0]


def _row(source: str, target: str) -> str:
    """Write a pair as a line; characters that would end a column or a line become a space."""
    return "\t".join(_NOT_IN_A_COLUMN.sub(" ", side) for side in (source, target)) + "\n"


TSV = PairFormat((".tsv",), line_reader(parse_row), _row)

"""JSONL: an object with texts "src" and "tgt" on each line; further keys are ignored."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transduce.errors import DataError
from transduce.files.files import MAX_LINE_BYTES
from transduce.files.formats.pair_format import OVERLONG, Pair, PairFormat, UnusableError, decode, line_reader
from transduce.files.languages import direction_of_entry

BAD_JSON = 'not a row with texts "src" and "tgt"'
OTHER_LANGUAGES = "in other languages than the first row"


class RowPairs:
    """Makes pairs of the rows of one file: of the texts "src" and "tgt", or of "translation".

    "translation" has a text for each of two languages; the source is the language that comes first in the first row.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._languages: tuple[str, ...] = ()

    def pair(self, row: Any) -> Pair:
        """The pair of an object or a row of a table, or raise `UnusableError`."""
        try:
            by_name = "src" in row or "translation" not in row
            sides = (row["src"], row["tgt"]) if by_name else self._sides(row["translation"])
            source, target = (side.encode() for side in sides)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UnusableError(BAD_JSON) from None
        if max(len(source), len(target)) > MAX_LINE_BYTES:
            raise UnusableError(OVERLONG)
        return decode(source), decode(target)

    def _sides(self, texts: Any) -> list[Any]:
        if not isinstance(texts, dict) or len(texts) != 2:
            raise UnusableError(BAD_JSON)
        if not self._languages:
            self._languages = tuple(texts)
            if direction_of_entry([str(self._path)]) == self._languages[::-1]:
                raise DataError(
                    f"{self._path}: its rows have {self._languages[0]} first, but its name {self._languages[1]}; "
                    f"rename it, e.g. {'-'.join(self._languages)}{self._path.suffix}"
                )
        if {*texts} != {*self._languages}:
            raise UnusableError(OTHER_LANGUAGES)
        return [texts[language] for language in self._languages]


def _read(path: Path) -> Iterator[tuple[int, Pair | str]]:
    rows = RowPairs(path)

    def parse(line: bytes) -> Pair:
        text = decode(line)
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            raise UnusableError(BAD_JSON) from None
        return rows.pair(record)

    return line_reader(parse)(path)


def _row(source: str, target: str) -> str:
    return json.dumps({"src": source, "tgt": target}, ensure_ascii=False) + "\n"


JSONL = PairFormat((".jsonl", ".ndjson"), _read, _row)

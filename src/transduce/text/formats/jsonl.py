"""JSONL: an object with texts "src" and "tgt" on each line; further keys are ignored."""

import json
from typing import Any

from transduce.text.files import MAX_LINE_BYTES
from transduce.text.formats.pair_format import OVERLONG, Pair, PairFormat, UnusableError, decode, line_reader

BAD_JSON = 'not a row with texts "src" and "tgt"'


def _parse(line: bytes) -> Pair:
    text = decode(line)
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise UnusableError(BAD_JSON) from None
    return pair_of_row(record)


def pair_of_row(row: Any) -> Pair:
    """The pair of an object or a row of a table, or raise `UnusableError`.

    Instead of "src" and "tgt", it may have "translation" with two texts by language, the source first.
    """
    try:
        sides = (row["src"], row["tgt"]) if "src" in row or "translation" not in row else row["translation"].values()
        source, target = (side.encode() for side in sides)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UnusableError(BAD_JSON) from None
    if max(len(source), len(target)) > MAX_LINE_BYTES:
        raise UnusableError(OVERLONG)
    return decode(source), decode(target)


def _row(source: str, target: str) -> str:
    return json.dumps({"src": source, "tgt": target}, ensure_ascii=False) + "\n"


JSONL = PairFormat((".jsonl", ".ndjson"), line_reader(_parse), _row)

"""JSONL: an object with texts "src" and "tgt" on each line; further keys are ignored."""

import json

from transduce.text.formats.pair_format import Pair, PairFormat, UnusableError, decode, line_reader

BAD_JSON = 'not a JSON object with texts "src" and "tgt"'


def _parse(line: bytes) -> Pair:
    text = decode(line)
    try:
        record = json.loads(text)
        source, target = record["src"].encode(), record["tgt"].encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UnusableError(BAD_JSON) from None
    return decode(source), decode(target)


def _row(source: str, target: str) -> str:
    return json.dumps({"src": source, "tgt": target}, ensure_ascii=False) + "\n"


JSONL = PairFormat((".jsonl", ".ndjson"), line_reader(_parse), _row)

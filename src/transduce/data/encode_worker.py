"""One of the processes that write token shards: `python -m transduce.data.encode_worker FOLDER N OF JOB`.

Every worker reads the entire corpus and encodes every OF-th shard of it, so that no text passes between processes.
It prints, as JSON, the number of examples of each part of the corpus that it has written; the others are too long.
Its exit code is CANNOT_WRITE if the disk is full, for example.
"""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from transduce.data.directions import CorpusPart
from transduce.data.document_shards import write_document_shards
from transduce.data.shards import write_shard
from transduce.errors import TransduceError
from transduce.files.pairs import ReadReport
from transduce.files.readers import READERS, Reader
from transduce.tokenizers.any_tokenizer import load_tokenizer, tokenizer_of_stream
from transduce.tokenizers.symbols import escape, mark

CANNOT_WRITE = 3
SHARD_PAIRS, _SHARD_ARRAYS = 50_000, 2_000


def shard_pairs(reader: Reader) -> int:
    """Number of examples of a shard."""
    return _SHARD_ARRAYS if reader.arrays else SHARD_PAIRS


def encode_shards(folder: Path, worker: int, workers: int, job: dict[str, Any]) -> list[int]:
    """Write this worker's shards; returns the number of examples of each part of the corpus that fit."""
    reader = READERS[job["reader"]]
    if reader.pieces:
        corpus = [files for part in job["parts"] for files in part["train"]]
        return [write_document_shards(folder, worker, workers, reader.pieces(corpus, ReadReport()))]
    tokenizer = load_tokenizer(folder)
    parts = [CorpusPart(**table) for table in job["parts"]]
    examples = _examples(parts, reader)
    class_of = {label: [number] for number, label in enumerate(job["labels"])}
    written = [0] * len(parts)
    for number, shard in enumerate(iter(lambda: list(islice(examples, shard_pairs(reader))), [])):
        if number % workers != worker:
            continue
        marked = (_mark(example, parts[part], reader, is_back) for part, is_back, example in shard)
        columns = list(zip(*marked, strict=True))
        streams: list[Any] = [
            tokenizer_of_stream(tokenizer, name).encode_all(column, marked=True)
            for name, column in zip(reader.texts(reader.streams), reader.texts(columns), strict=True)
        ]
        if reader.arrays:
            streams.insert(0, [array.reshape(-1) for array in columns[0]])
        if reader.labels:
            streams.append([class_of[label] for label in columns[-1]])
        kept = []
        for (part, _, _), ids in zip(shard, zip(*streams, strict=True), strict=True):
            if max(map(len, reader.texts(ids)), default=0) <= job["max_length"]:
                kept.append(ids)
                written[part] += 1
        sides = [[ids[stream] for ids in kept] for stream in range(len(reader.streams))]
        write_shard(folder, number, sides, max(tokenizer.vocab_size, tokenizer.target.vocab_size), reader.streams)
    return written


def _examples(parts: list[CorpusPart], reader: Reader) -> Iterator[tuple[int, bool, tuple[Any, ...]]]:
    """Every example of the corpus, with the number of its part and whether its source is a back-translation."""
    for number, part in enumerate(parts):
        for is_back_translation, example in part.read_train(reader, ReadReport()):
            yield number, is_back_translation, example


def _mark(example: tuple[Any, ...], part: CorpusPart, reader: Reader, is_back_translation: bool) -> tuple[Any, ...]:
    """The example with marked texts; the source of a pair begins with its tags."""
    if reader.arrays or reader.labels:
        texts = map(escape, reader.texts(example))
        return (*example[: int(reader.arrays)], *texts, *example[len(example) - int(reader.labels) :])
    first, *others = example
    return (mark(first, part.target, back_translated=is_back_translation), *map(escape, others))


if __name__ == "__main__":
    try:
        written = encode_shards(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
        print(json.dumps(written))
    except TransduceError as error:
        sys.exit(str(error))
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        sys.exit(CANNOT_WRITE)

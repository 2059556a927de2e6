"""One of the processes that write token shards: `python -m transduce.data.encode_worker FOLDER N OF JOB`.

Every worker reads the entire corpus and encodes every OF-th shard of it, so that no text passes between processes.
It prints, as JSON, the number of examples of each part of the corpus that it has written; the others are too long.
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
from transduce.text.languages import mark
from transduce.text.pairs import ReadReport
from transduce.text.readers import READERS
from transduce.text.symbols import escape
from transduce.text.tokenizer import Tokenizer

SHARD_PAIRS = 50_000


def encode_shards(folder: Path, worker: int, workers: int, job: dict[str, Any]) -> list[int]:
    """Write this worker's shards; returns the number of examples of each part of the corpus that fit."""
    reader = READERS[job["reader"]]
    if reader.pieces:
        corpus = [files for part in job["parts"] for files in part["train"]]
        return [write_document_shards(folder, worker, workers, reader.pieces(corpus, ReadReport()))]
    tokenizer = Tokenizer.load(folder / "tokenizer.model")
    examples = _marked_examples(job)
    written = [0] * len(job["parts"])
    for number, shard in enumerate(iter(lambda: list(islice(examples, SHARD_PAIRS)), [])):
        if number % workers != worker:
            continue
        texts = zip(*(texts for _, texts in shard), strict=True)
        encoded = zip(*(tokenizer.encode_all(stream, marked=True) for stream in texts), strict=True)
        kept = []
        for (part, _), ids in zip(shard, encoded, strict=True):
            if max(map(len, ids)) <= job["max_length"]:
                kept.append(ids)
                written[part] += 1
        streams = [[ids[stream] for ids in kept] for stream in range(len(reader.streams))]
        write_shard(folder, number, streams, tokenizer.vocab_size, reader.streams)
    return written


def _marked_examples(job: dict[str, Any]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every example of the corpus as marked texts, with the number of its part; its source begins with the tags."""
    reader = READERS[job["reader"]]
    for number, part in enumerate(CorpusPart(**table) for table in job["parts"]):
        for is_back_translation, (first, *others) in part.read_train(reader, ReadReport()):
            source = mark(first, part.target, back_translated=is_back_translation)
            yield number, (source, *map(escape, others))


if __name__ == "__main__":
    try:
        written = encode_shards(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
        print(json.dumps(written))
    except (TransduceError, OSError) as error:
        sys.exit(str(error))

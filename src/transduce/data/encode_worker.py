"""One of the processes that write token shards: `python -m transduce.data.encode_worker FOLDER N OF JOB`.

Every worker reads the entire corpus and encodes every OF-th shard of it, so that no text passes between processes.
It prints the number of examples that it left out because they are too long.
"""

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from transduce.data.shards import write_shard
from transduce.errors import TransduceError
from transduce.text.pairs import ReadReport
from transduce.text.readers import READERS
from transduce.text.tokenizer import Tokenizer

SHARD_PAIRS = 50_000


def encode_shards(folder: Path, worker: int, workers: int, job: dict[str, Any]) -> int:
    """Write this worker's shards; returns the number of examples left out because they are too long."""
    tokenizer = Tokenizer.load(folder / "tokenizer.model")
    reader = READERS[job["reader"]]
    examples = reader.read(job["train"], ReadReport(), reverse=job["reverse"])
    too_long = 0
    for number, shard in enumerate(iter(lambda: list(islice(examples, SHARD_PAIRS)), [])):
        if number % workers != worker:
            continue
        encoded = zip(*(tokenizer.encode_all(texts) for texts in zip(*shard, strict=True)), strict=True)
        kept = [ids for ids in encoded if max(map(len, ids)) <= job["max_length"]]
        too_long += len(shard) - len(kept)
        streams = [[ids[stream] for ids in kept] for stream in range(len(reader.streams))]
        write_shard(folder, number, streams, tokenizer.vocab_size, reader.streams)
    return too_long


if __name__ == "__main__":
    try:
        print(encode_shards(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])))
    except (TransduceError, OSError) as error:
        sys.exit(str(error))

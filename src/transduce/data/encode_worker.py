"""One of the processes that write token shards: `python -m transduce.data.encode_worker FOLDER N OF JOB`.

Every worker walks the whole corpus and encodes each OF-th shard of it, so nothing has to pass between processes.
It prints how many pairs it left out because they are too long.
"""

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from transduce.data.shards import write_shard
from transduce.errors import TransduceError
from transduce.text.pairs import ReadReport, read_pairs
from transduce.text.tokenizer import Tokenizer

SHARD_PAIRS = 50_000


def encode_shards(folder: Path, worker: int, workers: int, job: dict[str, Any]) -> int:
    """Write this worker's shards; the number of pairs left out because they are too long."""
    tokenizer = Tokenizer.load(folder / "tokenizer.model")
    pairs = read_pairs(job["train"], ReadReport(), reverse=job["reverse"])
    too_long = 0
    for number, shard in enumerate(iter(lambda: list(islice(pairs, SHARD_PAIRS)), [])):
        if number % workers != worker:
            continue
        sources, targets = (tokenizer.encode_all(side) for side in zip(*shard, strict=True))
        kept = [ids for ids in zip(sources, targets, strict=True) if max(map(len, ids)) <= job["max_length"]]
        too_long += len(shard) - len(kept)
        write_shard(folder, number, [[src for src, _ in kept], [tgt for _, tgt in kept]], tokenizer.vocab_size)
    return too_long


if __name__ == "__main__":
    try:
        print(encode_shards(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])))
    except (TransduceError, OSError) as error:
        sys.exit(str(error))

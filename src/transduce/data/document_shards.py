"""Documents as token shards: rows of ids that, one after another, are the stream of all documents.

Every document ends with EOS. A long document has several rows, of which only the last ends with EOS. `order.npy` has
the rows with their documents shuffled, and `ends.npy` the number of tokens up to the end of each row in that order.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.data.shards import INDEX
from transduce.disk import write_manifest
from transduce.files.documents import Piece
from transduce.files.pairs import Reservoir
from transduce.tokenizers.any_tokenizer import load_tokenizer
from transduce.tokenizers.tokenizer import EOS, encoding_units

ENDS = "ends.npy"
SHARD_CHARACTERS = 1 << 24
_STREAM = "text"
Ints = npt.NDArray[np.int64]


class DocumentSample:
    """What is learned from one pass over the documents: a sample of lines, all characters, and the size."""

    def __init__(self, pieces: Iterable[Piece], lines: int) -> None:
        sample = Reservoir[str](lines)
        self.alphabet: set[str] = set()
        """All characters that occur."""
        self.characters = 0
        """Total number of characters."""
        for piece in pieces:
            self.characters += len(piece.text)
            self.alphabet.update(piece.text)
            for line in encoding_units(piece.text) if lines else ():
                sample.offer(line)
        self.lines = sample.kept


def write_document_shards(folder: Path, worker: int, workers: int, pieces: Iterable[Piece]) -> int:
    """Write every `workers`-th shard, beginning with `worker`; returns the number of documents that end in them."""
    tokenizer = load_tokenizer(folder)
    dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32
    documents = 0
    for number, shard in enumerate(_shards(pieces)):
        if number % workers == worker:
            rows = [
                np.array([*tokenizer.encode_document(piece.text), *([EOS] if piece.is_last else [])], dtype)
                for piece in shard
            ]
            np.save(folder / f"{number}.{_STREAM}.npy", np.concatenate(rows))
            np.save(folder / f"{number}.{_STREAM}_offsets.npy", np.cumsum([0, *map(len, rows)], dtype=np.int64))
            documents += sum(piece.is_last for piece in shard)
    return documents


def write_document_index(folder: Path, facts: dict[str, Any]) -> None:
    """Shuffle the documents of all shards; write `index.json`, which also keeps `facts`, and the manifest."""
    lengths: list[Ints] = []
    are_last: list[npt.NDArray[np.bool_]] = []
    for number in range(len(list(folder.glob(f"*.{_STREAM}.npy")))):
        offsets = np.load(folder / f"{number}.{_STREAM}_offsets.npy")
        ids = np.load(folder / f"{number}.{_STREAM}.npy", mmap_mode="r")
        lengths.append(np.diff(offsets))
        are_last.append(ids[offsets[1:] - 1] == EOS)
    joined, is_last = np.concatenate(lengths), np.concatenate(are_last)
    document: Ints = np.cumsum(is_last) - is_last
    documents = int(is_last.sum())
    rank = np.random.default_rng(0).permutation(documents)
    order = np.argsort(rank[document], kind="stable")
    np.save(folder / "order.npy", order.astype(np.uint32))
    np.save(folder / "lengths.npy", joined[order][:, None].astype(np.uint32))
    np.save(folder / ENDS, np.cumsum(joined[order]))
    index = {
        **facts,
        "streams": [_STREAM],
        "shard_pairs": list(map(len, lengths)),
        "longest": int(joined.max()),
        "tokens": [int(joined.sum())],
        "documents": documents,
    }
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    write_manifest(folder)


def _shards(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    shard: list[Piece] = []
    characters = 0
    for piece in pieces:
        shard.append(piece)
        characters += len(piece.text)
        if characters >= SHARD_CHARACTERS:
            yield shard
            shard, characters = [], 0
    if shard:
        yield shard

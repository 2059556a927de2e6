"""Token shards of documents (data/shards.py).

Documents are rows of ids that, one after another, are the stream of all documents. Every document ends with EOS. A long
document has several rows, of which only the last ends with EOS. `order.npy` has the rows with their documents shuffled,
and `ends.npy` the number of tokens up to the end of each row in that order.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.data.data_config import DataConfig
from transduce.data.shards import INDEX, Ints, write_shard
from transduce.data.write_corpus import encode_corpus, missing_shards, write_tokenizer
from transduce.disk import write_manifest
from transduce.files.pairs import Corpus, ReadReport, Reservoir
from transduce.files.readers import Reader
from transduce.language_model.documents import DocumentPiece, read_documents, read_pieces
from transduce.tokenizers.any_tokenizer import AnyTokenizer, load_tokenizer
from transduce.tokenizers.tokenizer import EOS, Tokenizer, TokenizerConfig, encoding_units

ENDS = "ends.npy"
SHARD_CHARACTERS = 1 << 24
_STREAM = "text"


def write_documents(
    work: Path, data: DataConfig, vocabulary: TokenizerConfig | AnyTokenizer, log: Callable[[str], None], reader: str
) -> None:
    report = ReadReport()
    wanted = vocabulary.sample_pairs if isinstance(vocabulary, TokenizerConfig) else 0
    sample, alphabet, characters = Reservoir[str](wanted), set[str](), 0
    for piece in read_pieces(data.all_train, report):
        characters += len(piece.text)
        alphabet.update(piece.text)
        for line in encoding_units(piece.text) if wanted else ():
            sample.offer(line)

    def learn(config: TokenizerConfig) -> AnyTokenizer:
        log(f"data: learning a vocabulary of {config.vocab_size:,} tokens from {len(sample.kept):,} lines")
        return Tokenizer.train_on_documents(sample.kept, config, alphabet if config.type == "char" else ())

    tokenizer = write_tokenizer(work, vocabulary, learn)
    log(f"data: encoding {characters:,} characters")
    encode_corpus(work, data, reader, -(-characters // SHARD_CHARACTERS))
    write_index(work, {"vocab_size": tokenizer.vocab_size, "report": report.lines(), "files": data.all_train})


def encode_documents(folder: Path, worker: int, workers: int, corpus: Corpus) -> None:
    """Write every `workers`-th shard, beginning with `worker`."""
    tokenizer = load_tokenizer(folder)
    shards = _shards(read_pieces(corpus, ReadReport()))
    for number, shard in missing_shards(folder, shards, worker, workers):
        rows = [
            np.array([*tokenizer.encode_document(piece.text), *([EOS] if piece.is_last else [])], np.uint32)
            for piece in shard
        ]
        write_shard(folder, number, [rows], tokenizer.vocab_size, [_STREAM], [len(rows)])


def write_index(folder: Path, facts: dict[str, Any]) -> None:
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


def _shards(pieces: Iterable[DocumentPiece]) -> Iterator[list[DocumentPiece]]:
    shard: list[DocumentPiece] = []
    characters = 0
    for piece in pieces:
        shard.append(piece)
        characters += len(piece.text)
        if characters >= SHARD_CHARACTERS:
            yield shard
            shard, characters = [], 0
    if shard:
        yield shard


DOCUMENTS = Reader((_STREAM,), read_documents, pieces=read_pieces, write=write_documents, encode=encode_documents)

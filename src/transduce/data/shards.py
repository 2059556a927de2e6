"""A tokenised corpus on disk: memory-mapped arrays, so that it takes disk space and not memory.

An example has one sequence of ids for each stream; those of translation are pairs, with the streams `src` and `tgt`.
A folder holds `index.json`, `manifest.json` and, for each shard n and each stream, `n.src.npy` (all ids, concatenated)
and `n.src_offsets.npy`. The last file of a shard, `n.kept.json`, lists its number of pairs of each part of the corpus;
a shard without it is not complete. `order.npy` has the numbers of all pairs sorted by length, `lengths.npy` the number
of tokens in each of their streams, in that order.
"""

import json
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.data.remembered_digests import remembered_digests
from transduce.disk import damaged_file, flush, write_atomically, write_manifest
from transduce.errors import DataError

Ids = npt.NDArray[np.integer[Any]]
Ints = npt.NDArray[np.int64]
INDEX, STREAMS = "index.json", ("src", "tgt")


class TokenShards:
    """Read access to a prepared corpus; every file is checked against the manifest when it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with remembered_digests() as digest_of:
            damage = damaged_file(folder, needed=[INDEX], digest_of=digest_of)
        if damage:
            raise DataError(f"{damage[0]} {damage[1]}; delete {folder} to prepare it anew")
        self.index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        self.streams: tuple[str, ...] = tuple(self.index.get("streams", STREAMS))
        self._maps: list[mmap.mmap] = []
        self._order, self._lengths = self._map("order.npy"), self._map("lengths.npy")
        self._starts = np.cumsum([0, *self.index["shard_pairs"]])
        self._streams = [
            [(self._map(f"{n}.{name}.npy"), self._map(f"{n}.{name}_offsets.npy")) for n in range(len(self._starts) - 1)]
            for name in self.streams
        ]

    def __len__(self) -> int:
        """Number of pairs in an epoch; a pair may occur several times."""
        return len(self._order)

    @property
    def distinct(self) -> int:
        """Number of pairs without repetition, which are numbered from 0 on."""
        return int(self._starts[-1])

    @property
    def mean_lengths(self) -> tuple[float, ...]:
        return tuple(tokens / len(self) for tokens in self.index["tokens"])

    @property
    def most_repeats(self) -> int:
        """How often the pair that is repeated most occurs in an epoch."""
        return int(self.index.get("most_repeats", 1))

    def sorted_pairs(self, ranks: Ints) -> Ints:
        """The numbers of the pairs at these ranks in the order of lengths."""
        return self._order[ranks].astype(np.int64)

    def sorted_lengths(self, ranks: Ints) -> Ints:
        """The number of tokens of the pairs at these ranks: one row for each pair, one column for each stream."""
        return self._lengths[ranks].astype(np.int64)

    def longest_in_runs(self, size: int) -> Ints:
        """The maximum number of tokens, for each stream, in each run of `size` neighbours in that order."""
        return np.maximum.reduceat(self._lengths, np.arange(0, len(self), size), axis=0).astype(np.int64)

    def pairs(self, numbers: Ints) -> list[tuple[Any, ...]]:
        """The ids of these pairs: one array for each stream."""
        shards = np.searchsorted(self._starts, numbers, side="right") - 1
        rows = numbers - self._starts[shards]
        places = list(zip(shards.tolist(), rows.tolist(), strict=True))
        columns = [
            [ids[offsets[row] : offsets[row + 1]] for shard, row in places for ids, offsets in (stream[shard],)]
            for stream in self._streams
        ]
        return list(zip(*columns, strict=True))

    def release(self) -> None:
        """Release the mapped pages; otherwise the resident memory of the process would grow with the corpus."""
        for mapped in self._maps:
            mapped.madvise(mmap.MADV_DONTNEED)

    def _map(self, name: str) -> Ids:
        mapped = np.load(self.folder / name, mmap_mode="r", allow_pickle=False)
        if isinstance(mapped, np.memmap):  # an empty array is not mapped
            self._maps.append(mapped._mmap)  # type: ignore[attr-defined]
        return mapped.view(np.ndarray)  # slicing a plain array is several times faster


def write_shard(
    folder: Path,
    number: int,
    sides: Sequence[Sequence[Sequence[int] | Ids]],
    vocab_size: int,
    streams: Sequence[str] = STREAMS,
    kept: Sequence[int] = (),
) -> None:
    """Write one shard from the sentences, as ids, of each stream; `kept` is the number of those of each part."""
    dtype = np.uint16 if vocab_size <= 2**16 else np.uint32
    for stream, sentences in zip(streams, sides, strict=True):
        lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        if sentences and isinstance(sentences[0], np.ndarray):
            ids = np.concatenate(sentences).astype(dtype)
        else:
            ids = np.fromiter((i for sentence in sentences for i in sentence), dtype=dtype, count=offsets[-1])
        for name, array in ((stream, ids), (f"{stream}_offsets", offsets)):
            np.save(path := folder / f"{number}.{name}.npy", array)
            flush(path)
    write_atomically(kept_file(folder, number), json.dumps(kept).encode())


def kept_file(folder: Path, number: int | str) -> Path:
    return folder / f"{number}.kept.json"


def write_index(
    folder: Path, facts: dict[str, Any], streams: Sequence[str] = STREAMS, repeats: Sequence[tuple[int, float]] = ()
) -> None:
    """Sort the pairs of all shards by length; write `index.json`, which also keeps `facts`, and the manifest.

    If the facts have no `max_length`, it is that of the longest sequence. `repeats` has, for each part of the corpus in
    turn, its number of pairs and how often each of them occurs in an epoch; a fraction is a random subset.
    """
    lengths = []
    for number in range(len(list(folder.glob(f"*.{streams[0]}.npy")))):
        sides = [np.diff(np.load(folder / f"{number}.{stream}_offsets.npy")) for stream in streams]
        lengths.append(np.stack(sides, axis=1))
    joined = np.concatenate(lengths)
    joined = joined.astype(np.uint16 if joined.max() < 2**16 else np.uint32)
    columns = joined.astype(np.int64).T
    # By the longest side; among equals by which side that is.
    order = np.lexsort((columns[0] - columns[-1], columns.max(axis=0)))
    times = _times(repeats, len(joined))
    order = np.repeat(order, times[order])
    np.save(folder / "order.npy", order.astype(np.uint32))
    np.save(folder / "lengths.npy", joined[order])
    index = {
        "max_length": int(joined.max()),
        **facts,
        **({} if tuple(streams) == STREAMS else {"streams": list(streams)}),
        "shard_pairs": [len(shard) for shard in lengths],
        "longest": int(joined.max()),
        **({"most_repeats": int(times.max())} if times.max() > 1 else {}),
        "tokens": joined[order].sum(axis=0, dtype=np.int64).tolist(),
    }
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    write_manifest(folder)


def _times(repeats: Sequence[tuple[int, float]], pairs: int) -> Ints:
    if not repeats:
        return np.ones(pairs, np.int64)
    chance = np.random.default_rng(0)
    times = []
    for count, repeat in repeats:
        whole, fraction = divmod(repeat, 1)
        of_part = np.full(count, int(whole), np.int64)
        of_part[chance.choice(count, round(fraction * count), replace=False)] += 1
        times.append(of_part)
    return np.concatenate(times)

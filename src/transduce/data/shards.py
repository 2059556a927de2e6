"""A tokenised corpus on disk: memory-mapped arrays, so that its size costs disk and not memory.

A folder holds `index.json`, `manifest.json` and, for each shard n, `n.src.npy` and `n.tgt.npy` (all ids in a row) with
`n.src_offsets.npy` and `n.tgt_offsets.npy`. `order.npy` has the numbers of all pairs sorted by length, `lengths.npy`
their tokens of source and target in that order.
"""

import json
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.disk import damaged_file, write_manifest
from transduce.errors import DataError

Ids = npt.NDArray[np.integer[Any]]
Ints = npt.NDArray[np.int64]
INDEX, SIDES = "index.json", ("src", "tgt")


class TokenShards:
    """Read access to a prepared corpus, whose every file is checked when it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if damage := damaged_file(folder, needed=[INDEX]):
            raise DataError(f"{damage[0]} {damage[1]}; delete {folder} to prepare it anew")
        self.index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        self._maps: list[mmap.mmap] = []
        self._order, self._lengths = self._map("order.npy"), self._map("lengths.npy")
        self._starts = np.cumsum([0, *self.index["shard_pairs"]])
        self._shards = [
            [(self._map(f"{n}.{side}.npy"), self._map(f"{n}.{side}_offsets.npy")) for side in SIDES]
            for n in range(len(self.index["shard_pairs"]))
        ]

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Mean tokens of source and target."""
        src, tgt = self.index["tokens"]
        return src / len(self), tgt / len(self)

    def sorted_pairs(self, ranks: Ints) -> Ints:
        """The numbers of the pairs at these places in the order of lengths."""
        return self._order[ranks].astype(np.int64)

    def sorted_lengths(self, ranks: Ints) -> Ints:
        """Their tokens of source and target, one row each."""
        return self._lengths[ranks].astype(np.int64)

    def longest_in_runs(self, size: int) -> Ints:
        """The most tokens of source and target in each run of `size` neighbours in that order."""
        return np.maximum.reduceat(self._lengths, np.arange(0, len(self), size), axis=0).astype(np.int64)

    def pairs(self, numbers: Ints) -> list[tuple[Ids, Ids]]:
        """The ids of these pairs, source and target."""
        shards = np.searchsorted(self._starts, numbers, side="right") - 1
        places = numbers - self._starts[shards]
        found = []
        for shard, place in zip(shards.tolist(), places.tolist(), strict=True):
            (src, src_offsets), (tgt, tgt_offsets) = self._shards[shard]
            found.append(
                (
                    src[src_offsets[place] : src_offsets[place + 1]],
                    tgt[tgt_offsets[place] : tgt_offsets[place + 1]],
                )
            )
        return found

    def release(self) -> None:
        """Let go of the pages touched so far; without this the process would seem to grow with the corpus."""
        for mapped in self._maps:
            mapped.madvise(mmap.MADV_DONTNEED)

    def _map(self, name: str) -> Ids:
        mapped = np.load(self.folder / name, mmap_mode="r", allow_pickle=False)
        if isinstance(mapped, np.memmap):  # an empty array is not mapped
            self._maps.append(mapped._mmap)  # type: ignore[attr-defined]
        return mapped.view(np.ndarray)  # plain arrays are sliced several times faster than numpy's memmap


def write_shard(folder: Path, number: int, sides: Sequence[Sequence[Sequence[int]]], vocab_size: int) -> None:
    """Write one shard from the ids of its sources and of its targets."""
    dtype = np.uint16 if vocab_size <= 2**16 else np.uint32
    for side, sentences in zip(SIDES, sides, strict=True):
        lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.fromiter((i for sentence in sentences for i in sentence), dtype=dtype, count=offsets[-1])
        np.save(folder / f"{number}.{side}.npy", ids)
        np.save(folder / f"{number}.{side}_offsets.npy", offsets)


def write_index(folder: Path, facts: dict[str, Any]) -> None:
    """Sort what the shards hold by length; write `index.json`, in which `facts` are kept too, and the manifest."""
    counts = []
    lengths = []
    for number in range(len(list(folder.glob("*.src.npy")))):
        sides = [np.diff(np.load(folder / f"{number}.{side}_offsets.npy")) for side in SIDES]
        lengths.append(np.stack(sides, axis=1).astype(np.uint16))
        counts.append(len(sides[0]))
    joined = np.concatenate(lengths)
    src, tgt = joined.astype(np.int64).T
    order = np.lexsort((src - tgt, np.maximum(src, tgt)))  # by the longer side, then by which side that is
    np.save(folder / "order.npy", order.astype(np.uint32))
    np.save(folder / "lengths.npy", joined[order])
    index = {
        **facts,
        "shard_pairs": counts,
        "longest": int(joined.max()),
        "tokens": joined.sum(axis=0, dtype=np.int64).tolist(),
    }
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    write_manifest(folder)

"""Packed batches on a device."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from transduce.data.packing import PackedBatch
from transduce.nn.device import send
from transduce.nn.segments import Segments, group_segments, max_groups, pack_tokens

T = TypeVar("T")
BATCH_TOKENS = 4096
"""Maximum number of tokens of a batch that is only read, unless another one is chosen."""


@dataclass(frozen=True)
class Stream:
    """The packed token ids of one side of a batch, and their segments."""

    ids_N: Tensor
    segments: Segments


@dataclass(frozen=True)
class Batch:
    """Named packed streams, and the labels that a model should predict; see `PackedBatch`."""

    streams: Mapping[str, Stream]
    labels_L: Tensor
    count: int
    """Number of labels that count."""
    positions_L: Tensor | None = None
    """The tokens of the last stream at which labels are predicted; None is every token."""
    work: int | None = None
    """What the speed of training counts (`Task.counted`), if it is not labels."""

    @classmethod
    def of(cls, device: torch.device | str = "cpu", **streams: Sequence[Sequence[int]]) -> "Batch":
        """A batch without labels, from the token ids of each stream: `Batch.of(src=[[5, 3]], tgt=[[2, 7]])`."""
        packed = {name: Stream(*pack_tokens(sequences, device)) for name, sequences in streams.items()}
        return cls(packed, labels_L=torch.empty(0, dtype=torch.int64, device=device), count=0)

    def __getitem__(self, name: str) -> Stream:
        return self.streams[name]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors whose content differs between batches of the same shapes."""
        streams = [tensor for stream in self.streams.values() for tensor in (stream.ids_N, stream.segments.offsets_B1)]
        return [self.labels_L, *streams, *(x for x in (self.positions_L, self._groups_G1) if x is not None)]

    def with_tensors(self, tensors: Sequence[Tensor]) -> "Batch":
        """A batch of the same shapes with other content, in the order of `tensors`."""
        labels_L, *others = tensors
        groups_G1 = others.pop() if self._groups_G1 is not None else None
        positions_L = others.pop() if self.positions_L is not None else None
        pairs = zip(self.streams.items(), others[0::2], others[1::2], strict=True)
        streams = {
            name: Stream(ids_N, replace(stream.segments, offsets_B1=offsets_B1, groups_G1=groups_G1))
            for (name, stream), ids_N, offsets_B1 in pairs
        }
        return Batch(streams, labels_L, self.count, positions_L, self.work)

    @property
    def _groups_G1(self) -> Tensor | None:
        return next(iter(self.streams.values())).segments.groups_G1


def to_device(batch: PackedBatch, device: torch.device, longest: int | None = None) -> Batch:
    """Copy a batch to the device; with `longest`, all batches have this upper bound on the length of a segment."""
    offsets = [stream.offsets_B1 for stream in batch.streams.values()]
    groups_G1 = None
    if longest:
        bounds = group_segments([x.tolist() for x in offsets])
        unused = [bounds[-1]] * (max_groups(int(offsets[0][-1])) + 1 - len(bounds))
        groups_G1 = send(np.array(bounds + unused, dtype=np.int32), device)
    streams = {}
    for name, stream in batch.streams.items():
        bound = longest or int(np.diff(stream.offsets_B1).max())
        segments = Segments(send(stream.offsets_B1, device), bound, int(stream.offsets_B1[-1]), groups_G1)
        streams[name] = Stream(send(stream.ids_N, device), segments)
    positions_L = None if batch.positions_L is None else send(batch.positions_L, device)
    return Batch(streams, send(batch.labels_L, device), batch.count, positions_L, batch.work)


def batches_by_length(sizes: Sequence[int], most: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Numbers of items of similar size, with at most `most` tokens in a batch, but at least one item."""
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    return in_batches(order, [sizes[number] for number in order], most)


def in_batches(items: Iterable[T], sizes: Iterable[int], most: int = BATCH_TOKENS) -> Iterator[list[T]]:
    """Consecutive items with at most `most` tokens in a batch, but at least one item."""
    batch: list[T] = []
    tokens = 0
    for item, size in zip(items, sizes, strict=True):
        if batch and tokens + size > most:
            yield batch
            batch, tokens = [], 0
        batch.append(item)
        tokens += size
    if batch:
        yield batch

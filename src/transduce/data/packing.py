"""Packed batches in numpy: the sequences of each stream concatenated in one array, and their offsets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.tokenizers.tokenizer import PAD

Ids = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]
TokenIds = Sequence[int] | npt.NDArray[np.integer[Any]]
Example = tuple[TokenIds, ...]
"""Token ids of one example, one sequence per stream, without markers."""


@dataclass(frozen=True)
class PackedStream:
    """Sequence b owns tokens offsets[b]:offsets[b+1]; tokens after the last real one are filler."""

    ids_N: Ids
    offsets_B1: Offsets

    @classmethod
    def of(cls, sequences: Sequence[TokenIds], end: int) -> "PackedStream":
        """These sequences, each followed by the marker `end`."""
        marker = np.array([end])
        parts = [part for sequence in sequences for part in (sequence, marker)]
        offsets = np.cumsum([0, *(len(sequence) + 1 for sequence in sequences)], dtype=np.int32)
        return cls(np.concatenate(parts, dtype=np.int64, casting="unsafe"), offsets)


@dataclass(frozen=True)
class PackedBatch:
    """Named streams, and the labels that the model should predict."""

    streams: Mapping[str, PackedStream]
    """In the order of the task; every stream has the same number of sequences."""
    labels_L: Ids
    """PAD at positions that do not count."""
    count: int
    """Number of labels that count."""
    positions_L: Ids | None = None
    """The tokens of the last stream at which labels are predicted; None is every token."""
    work: int | None = None
    """What the speed of training counts (`Task.counted`), if it is not labels."""

    def __getitem__(self, name: str) -> PackedStream:
        return self.streams[name]


def without_labels(batch: PackedBatch) -> PackedBatch:
    """The batch with no label that counts: its loss and its gradients are zero."""
    return replace(batch, labels_L=np.full_like(batch.labels_L, PAD), count=0, work=0)


def fill(
    batch: PackedBatch,
    tokens: int,
    max_sequences: int,
    longest: int,
    max_filler_segments: int | None = None,
    max_labels: Callable[[int, int], int] = lambda tokens, segments: tokens,
) -> PackedBatch:
    """The batch in buffers of fixed size, so that every batch has the same shapes.

    Every stream grows to `tokens` tokens and to the same number of segments; labels and positions grow to `max_labels`,
    a function of the numbers of tokens and of segments, or if there are more, the last ones are left out.
    The filler is cut into segments of at most `longest` tokens, so that every token belongs to a segment; unused
    segments are empty. `max_filler_segments` is the number of them that a batch of `max_sequences` may need.
    """
    tokens_left = {name: tokens - len(stream.ids_N) for name, stream in batch.streams.items()}
    assert min(tokens_left.values()) >= 0
    assert all(len(stream.offsets_B1) - 1 <= max_sequences for stream in batch.streams.values())
    segments = max_sequences + (-(-tokens // longest) if max_filler_segments is None else max_filler_segments)
    filler_segments = max(-(-left // longest) for left in tokens_left.values())

    def filled(stream: PackedStream, left: int) -> PackedStream:
        real = stream.offsets_B1
        filler = real[-1] + np.arange(1, filler_segments + 1) * left // max(filler_segments, 1)
        offsets = np.full(segments + 1, tokens, dtype=np.int32)
        offsets[: len(real)] = real
        offsets[len(real) : len(real) + filler_segments] = filler
        return PackedStream(_padded(stream.ids_N, tokens, PAD), offsets)

    size = max_labels(tokens, segments)
    labels, positions = batch.labels_L[:size], batch.positions_L
    return PackedBatch(
        streams={name: filled(stream, tokens_left[name]) for name, stream in batch.streams.items()},
        labels_L=_padded(labels, size, PAD),
        count=batch.count if len(labels) == len(batch.labels_L) else int((labels != PAD).sum()),
        positions_L=None if positions is None else _padded(positions[:size], size, 0),
        work=batch.work,
    )


def _padded(ids: Ids, length: int, value: int) -> Ids:
    return np.pad(ids, (0, length - len(ids)), constant_values=value)

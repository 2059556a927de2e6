"""A packed batch: the sentences of each side laid end to end in one flat array, with the places where they start."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.text.tokenizer import BOS, EOS, PAD

Ids = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]
Sentence = Sequence[int] | npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class PackedBatch:
    """Sentence b owns tokens offsets[b]:offsets[b+1] of its side; tokens after the last real one are filler."""

    src_N: Ids
    src_offsets_B1: Offsets
    tgt_M: Ids
    """What the decoder reads: begin marker, then the target."""
    labels_M: Ids
    """What it should say: the target, then the end marker; PAD where nothing is asked (filler)."""
    tgt_offsets_B1: Offsets
    target_tokens: int
    """Labels that count."""


def pack(pairs: Iterable[tuple[Sentence, Sentence]]) -> PackedBatch:
    """Lay pairs of ids end to end, with their markers."""
    sources, targets = zip(*pairs, strict=True)
    src, src_offsets = _lay_out(sources, after=EOS)
    labels, tgt_offsets = _lay_out(targets, after=EOS)
    tgt = np.concatenate([[BOS], labels[:-1]])  # each token is read one place after it was to be said ...
    tgt[tgt_offsets[:-1]] = BOS  # ... and each sentence begins afresh
    return PackedBatch(src, src_offsets, tgt, labels, tgt_offsets, target_tokens=len(labels))


def mute(batch: PackedBatch) -> PackedBatch:
    """The batch with nothing asked: its loss and its gradients are zero."""
    return replace(batch, labels_M=np.full_like(batch.labels_M, PAD), target_tokens=0)


def fill(batch: PackedBatch, tokens: int, max_pairs: int, longest: int) -> PackedBatch:
    """The batch in buffers of fixed size, so that every batch has the same shapes.

    Both sides grow to `tokens` tokens and to the same number of segments. The filler is itself cut into segments of
    at most `longest` tokens, so every token belongs to a segment; segments left over are empty.
    """
    src_room, tgt_room = tokens - len(batch.src_N), tokens - len(batch.tgt_M)
    assert min(src_room, tgt_room) >= 0
    assert len(batch.src_offsets_B1) - 1 <= max_pairs
    segments = max_pairs + -(-tokens // longest)
    filler_segments = max(-(-src_room // longest), -(-tgt_room // longest))

    def offsets(real: Offsets, room: int) -> Offsets:
        filler = real[-1] + np.arange(1, filler_segments + 1) * room // max(filler_segments, 1)
        result = np.full(segments + 1, tokens, dtype=np.int32)
        result[: len(real)] = real
        result[len(real) : len(real) + filler_segments] = filler
        return result

    return PackedBatch(
        src_N=np.pad(batch.src_N, (0, src_room), constant_values=PAD),
        src_offsets_B1=offsets(batch.src_offsets_B1, src_room),
        tgt_M=np.pad(batch.tgt_M, (0, tgt_room), constant_values=PAD),
        labels_M=np.pad(batch.labels_M, (0, tgt_room), constant_values=PAD),
        tgt_offsets_B1=offsets(batch.tgt_offsets_B1, tgt_room),
        target_tokens=batch.target_tokens,
    )


def _lay_out(sentences: Sequence[Sentence], after: int) -> tuple[Ids, Offsets]:
    """All sentences in one array, each with the marker `after` it."""
    marker = np.array([after])
    parts = [part for sentence in sentences for part in (sentence, marker)]
    offsets = np.cumsum([0, *(len(sentence) + 1 for sentence in sentences)], dtype=np.int32)
    return np.concatenate(parts, dtype=np.int64, casting="unsafe"), offsets

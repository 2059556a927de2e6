"""Packed batches and their filler, against what the words mean."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from transduce.data.packing import PackedBatch, TokenIds, fill
from transduce.translation.task import Translate

PAD, BOS, EOS = 0, 2, 3
Pair = tuple[list[int], list[int]]


def random_pairs(count: int, longest: int, seed: int) -> list[Pair]:
    draw = random.Random(seed)

    def sentence() -> list[int]:
        return [draw.randrange(4, 50) for _ in range(draw.randint(1, longest))]

    return [(sentence(), sentence()) for _ in range(count)]


def test_two_pairs_laid_out_by_hand() -> None:
    batch = Translate().pack([([10, 11], [20, 21, 22]), ([12], [23])])
    assert batch["src"].ids_N.tolist() == [10, 11, EOS, 12, EOS]
    assert batch["src"].offsets_B1.tolist() == [0, 3, 5]
    assert batch["tgt"].ids_N.tolist() == [BOS, 20, 21, 22, BOS, 23]
    assert batch.labels_L.tolist() == [20, 21, 22, EOS, 23, EOS]
    assert batch["tgt"].offsets_B1.tolist() == [0, 4, 6]
    assert batch.count == 6


@pytest.mark.parametrize("make", [list, lambda ids: np.array(ids, dtype=np.uint16)], ids=["lists", "arrays"])
def test_empty_sentences_are_their_markers_alone(make: Callable[[list[int]], TokenIds]) -> None:
    batch = Translate().pack([(make([]), make([20])), (make([]), make([])), (make([12]), make([]))])
    assert batch["src"].ids_N.tolist() == [EOS, EOS, 12, EOS]
    assert batch["src"].offsets_B1.tolist() == [0, 1, 2, 4]
    assert batch["tgt"].ids_N.tolist() == [BOS, 20, BOS, BOS]
    assert batch.labels_L.tolist() == [20, EOS, EOS, EOS]
    assert batch["tgt"].offsets_B1.tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize("seed", range(5))
def test_each_segment_is_its_sentence_with_markers_and_labels_are_one_token_ahead(seed: int) -> None:
    pairs = random_pairs(count=1 + 3 * seed, longest=9, seed=seed)
    batch = Translate().pack(pairs)
    assert len(batch["src"].offsets_B1) == len(batch["tgt"].offsets_B1) == len(pairs) + 1
    for b, (src, tgt) in enumerate(pairs):
        src_slice = slice(batch["src"].offsets_B1[b], batch["src"].offsets_B1[b + 1])
        tgt_slice = slice(batch["tgt"].offsets_B1[b], batch["tgt"].offsets_B1[b + 1])
        assert batch["src"].ids_N[src_slice].tolist() == [*src, EOS]
        assert batch["tgt"].ids_N[tgt_slice].tolist() == [BOS, *tgt]
        assert batch.labels_L[tgt_slice].tolist() == [*tgt, EOS]
    assert batch.count == len(batch.labels_L) == sum(len(tgt) + 1 for _, tgt in pairs)
    assert len(batch["src"].ids_N) == sum(len(src) + 1 for src, _ in pairs)


def test_ids_from_shards_are_packed_as_lists_are() -> None:
    pairs = random_pairs(count=4, longest=6, seed=1)
    arrays = [(np.array(src, dtype=np.uint16), np.array(tgt, dtype=np.uint16)) for src, tgt in pairs]
    expected, found = Translate().pack(pairs), Translate().pack(arrays)
    for ours, wanted in zip(integers(found), integers(expected), strict=True):
        assert ours.dtype == np.int64
        assert ours.tolist() == wanted.tolist()
    assert found["src"].offsets_B1.dtype == found["tgt"].offsets_B1.dtype == np.int32


def integers(batch: PackedBatch) -> list[Any]:
    return [batch["src"].ids_N, batch["tgt"].ids_N, batch.labels_L]


def shapes(batch: PackedBatch) -> list[tuple[int, ...]]:
    arrays = (batch["src"].ids_N, batch["src"].offsets_B1, batch["tgt"].ids_N, batch.labels_L, batch["tgt"].offsets_B1)
    return [array.shape for array in arrays]


def test_filled_batches_all_have_the_same_shapes() -> None:
    batches = [Translate().pack(random_pairs(count, longest=9, seed=count)) for count in (1, 2, 5, 8)]
    batches.append(Translate().pack([([7] * 9, [7] * 9)] * 8))  # both sides full to the last token
    found = [shapes(fill(batch, tokens=80, max_sequences=8, longest=10)) for batch in batches]
    assert all(each == found[0] for each in found)
    assert found[0][0] == found[0][2] == found[0][3] == (80,)


@pytest.mark.parametrize(
    ("src_lengths", "tgt_lengths"),
    [
        pytest.param([3, 5], [4, 1], id="room on both sides"),
        pytest.param([9, 9, 9], [1, 1, 1], id="source full"),
        pytest.param([1, 1, 1], [9, 9, 9], id="target full"),
        pytest.param([9, 9, 9], [9, 9, 9], id="both full"),
        pytest.param([8, 9, 9], [9, 9, 8], id="room for one token"),
        pytest.param([1], [1], id="almost all filler"),
    ],
)
@pytest.mark.parametrize("longest", [10, 13, 30, 64])
def test_filler_lies_in_segments_of_its_own_and_asks_for_nothing(
    src_lengths: list[int], tgt_lengths: list[int], longest: int
) -> None:
    tokens, max_pairs = 30, 3
    batch = Translate().pack([([5] * src, [6] * tgt) for src, tgt in zip(src_lengths, tgt_lengths, strict=True)])
    filled = fill(batch, tokens, max_pairs, longest)
    pairs = len(src_lengths)
    sides = [
        (batch["src"].ids_N, batch["src"].offsets_B1, filled["src"].ids_N, filled["src"].offsets_B1),
        (batch["tgt"].ids_N, batch["tgt"].offsets_B1, filled["tgt"].ids_N, filled["tgt"].offsets_B1),
    ]
    for ids, offsets, filled_ids, filled_offsets in sides:
        assert filled_ids[: len(ids)].tolist() == ids.tolist()
        assert set(filled_ids[len(ids) :].tolist()) <= {PAD}
        assert filled_offsets[: pairs + 1].tolist() == offsets.tolist()
        lengths = np.diff(filled_offsets)
        assert filled_offsets[0] == 0
        assert filled_offsets[-1] == tokens == len(filled_ids)
        assert lengths.min() >= 0
        assert lengths.max() <= longest
        assert filled_offsets.dtype == np.int32
    assert len(filled["src"].offsets_B1) == len(filled["tgt"].offsets_B1)

    real = len(batch.labels_L)
    assert filled.labels_L[:real].tolist() == batch.labels_L.tolist()
    assert filled.labels_L[real:].tolist() == [PAD] * (tokens - real)
    assert filled.count == real == int((filled.labels_L != PAD).sum())


def test_a_batch_that_does_not_fit_its_buffers_is_refused() -> None:
    batch = Translate().pack([([5] * 9, [6] * 3), ([5] * 9, [6] * 3)])
    with pytest.raises(AssertionError):
        fill(batch, tokens=19, max_sequences=3, longest=10)
    with pytest.raises(AssertionError):
        fill(batch, tokens=30, max_sequences=1, longest=10)

"""Pairs that occur several times in an epoch: the index, the plan, and the repetitions that replay requires."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers import write_corpus

from transduce.data.data_config import CorpusPart, part_repetitions
from transduce.data.plan import BatchPlan
from transduce.data.shards import TokenShards, write_index, write_shard


def corpus(folder: Path, lengths: list[int], repeats: list[tuple[int, float]]) -> TokenShards:
    folder.mkdir()
    sides = [[[7] * length for length in lengths]] * 2
    write_shard(folder, 0, sides, vocab_size=350)
    write_index(folder, {"vocab_size": 350, "max_length": 256, "report": []}, repeats=repeats)
    return TokenShards(folder)


def test_the_whole_part_repeats_every_pair_and_the_fraction_a_subset(tmp_path: Path) -> None:
    lengths = [1 + n % 9 for n in range(100)]
    shards = corpus(tmp_path / "some", lengths, [(40, 2.25), (50, 0.5), (10, 1.0)])
    times = Counter(shards.sorted_pairs(np.arange(len(shards))).tolist())
    assert Counter(times[n] for n in range(40)) == {2: 30, 3: 10}
    assert Counter(times[n] for n in range(40, 90)) == {1: 25, 0: 25}
    assert {times[n] for n in range(90, 100)} == {1}
    assert len(shards) == sum(times.values()) == 125
    assert shards.index["tokens"] == [sum(lengths[n] * count for n, count in times.items())] * 2
    again = corpus(tmp_path / "again", lengths, [(40, 2.25), (50, 0.5), (10, 1.0)])
    assert (tmp_path / "some/order.npy").read_bytes() == (again.folder / "order.npy").read_bytes()


def test_repeats_of_one_change_nothing(tmp_path: Path) -> None:
    lengths = [(1 + n % 9, 1 + n % 7) for n in range(100)]
    plain = write_corpus(tmp_path / "plain", lengths, 100)
    ones = write_corpus(tmp_path / "ones", lengths, 100)
    write_index(ones.folder, {}, repeats=[(60, 1), (40, 1)])
    for name in ("order.npy", "lengths.npy"):
        assert (plain.folder / name).read_bytes() == (ones.folder / name).read_bytes()


def test_an_epoch_has_every_copy_and_a_batch_seldom_has_two_of_the_same_pair(tmp_path: Path) -> None:
    lengths = [3 + n % 20 for n in range(1050)]
    shards = corpus(tmp_path / "c", lengths, [(50, 20.0), (1000, 1.0)])
    plan = BatchPlan(shards, batch_tokens=300, seed=1)
    batches = [plan.batch(n).tolist() for n in range(plan.batches_per_epoch)]
    times = Counter(pair for batch in batches for pair in batch)
    assert {times[n] for n in range(50)} == {20}
    assert {times[n] for n in range(50, 1050)} == {1}
    new = [sum(pair < 50 for pair in batch) / len(batch) for batch in batches]
    assert 0.4 < np.mean(new) < 0.6
    copies = sum(len(batch) - len(set(batch)) for batch in batches)
    assert copies < 0.06 * len(shards)  # with the number of pools of a corpus without repeats: 0.25


NEW, OLD = CorpusPart((), (), False), CorpusPart((), (), False, is_replay=True)


@pytest.mark.parametrize(
    ("pairs", "share", "expected"),
    [
        ((1000, 150_000), 0.5, (150.0, 1.0)),
        ((1000, 3000), 0.25, (9.0, 1.0)),
        ((3000, 1000), 0.5, (1.0, 3.0)),
        ((1000, 1000), 0.5, (1.0, 1.0)),
    ],
)
def test_old_text_has_its_share_and_every_pair_occurs(
    pairs: tuple[int, int], share: float, expected: tuple[float, float]
) -> None:
    times = part_repetitions([NEW, OLD], pairs, 1.0, share)
    assert times == pytest.approx(expected)
    new, old = (count * often for count, often in zip(pairs, times, strict=True))
    assert old / (new + old) == pytest.approx(share)


def test_without_old_text_only_the_temperature_counts() -> None:
    assert part_repetitions([NEW, NEW], (100, 400), 2.0, 0.5) == pytest.approx([2.0, 1.0])
    times = part_repetitions([NEW, NEW, OLD], (100, 400, 300), 2.0, 0.5)
    assert times == pytest.approx([2.0, 1.0, 2.0])


@pytest.mark.parametrize("pairs", [(0, 100), (100, 0)])
def test_a_part_without_pairs_is_not_repeated(pairs: tuple[int, int]) -> None:
    assert part_repetitions([NEW, OLD], pairs, 1.0, 0.5) == [1.0, 1.0]

"""The batch plan: a pure function of corpus, seed and batch number, with every pair once in each epoch."""

import random
from pathlib import Path

import numpy as np
import pytest
from helpers import write_corpus

from transduce.data.plan import BatchPlan
from transduce.data.shards import TokenShards, write_index, write_shard
from transduce.errors import ConfigError

Lengths = list[tuple[int, int]]


def like_text(pairs: int, seed: int = 0, longest: int = 60) -> Lengths:
    """Lengths like those of text: a long tail, and a target about as long as its source."""
    rng = random.Random(seed)

    def clip(length: float) -> int:
        return max(1, min(longest, round(length)))

    sources = [clip(rng.lognormvariate(2.5, 0.6)) for _ in range(pairs)]
    return [(length, clip(length * rng.uniform(0.7, 1.5))) for length in sources]


def unrelated(pairs: int, seed: int = 0) -> Lengths:
    rng = random.Random(seed)
    return [(rng.randint(0, 30), rng.randint(0, 30)) for _ in range(pairs)]


# Name: lengths of the corpus, tokens of a batch. The last ones fill several pools of 64 batches.
CORPORA: dict[str, tuple[Lengths, int]] = {
    "one pair": ([(3, 5)], 8),
    "one pair in a large batch": ([(3, 5)], 1000),
    "two pairs": ([(3, 5), (7, 2)], 8),
    "each pair fills a batch": ([(9, 9)] * 37, 10),
    "empty sentences": ([(0, 0)] * 50, 12),
    "very short": ([(1, 1)] * 500, 40),
    "one long pair among short ones": ([(2, 2)] * 300 + [(99, 99)], 100),
    "source longer than target": ([(20, 2), (25, 4), (18, 3)] * 60, 64),
    "unrelated lengths": (unrelated(700), 90),
    "like text": (like_text(1500), 400),
    "like text, several pools": (like_text(3000), 100),
    "unrelated lengths, several pools": (unrelated(3000), 64),
}
EACH_CORPUS = pytest.mark.parametrize("name", CORPORA)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TokenShards]:
    folder = tmp_path_factory.mktemp("corpora")
    return {name: write_corpus(folder / name, lengths, 400) for name, (lengths, _) in CORPORA.items()}


def epoch(plan: BatchPlan, number: int = 0) -> list[list[int]]:
    """All batches of an epoch, in order."""
    first = number * plan.batches_per_epoch
    return [plan.batch(first + n).tolist() for n in range(plan.batches_per_epoch)]


def tokens_of(batch: list[int], lengths: Lengths) -> tuple[int, int]:
    """Source and target tokens, including the end marker of each sentence."""
    return sum(lengths[pair][0] + 1 for pair in batch), sum(lengths[pair][1] + 1 for pair in batch)


@EACH_CORPUS
def test_every_pair_is_drawn_exactly_once_in_every_epoch(name: str, corpora: dict[str, TokenShards]) -> None:
    lengths, batch_tokens = CORPORA[name]
    for seed in (1, 2):
        plan = BatchPlan(corpora[name], batch_tokens, seed)
        for number in range(3):
            drawn = [pair for batch in epoch(plan, number) for pair in batch]
            assert sorted(drawn) == list(range(len(lengths)))


@EACH_CORPUS
def test_no_batch_exceeds_its_budget_of_tokens_or_pairs_on_either_side(
    name: str, corpora: dict[str, TokenShards]
) -> None:
    lengths, batch_tokens = CORPORA[name]
    plan = BatchPlan(corpora[name], batch_tokens, seed=3)
    for batch in epoch(plan) + epoch(plan, 1):
        assert len(batch) >= 1
        assert max(tokens_of(batch, lengths)) <= batch_tokens
        assert len(batch) <= plan.max_pairs


@EACH_CORPUS
def test_any_batch_can_be_computed_without_the_ones_before_it(name: str, corpora: dict[str, TokenShards]) -> None:
    _, batch_tokens = CORPORA[name]
    plan = BatchPlan(corpora[name], batch_tokens, seed=4)
    in_sequence = epoch(plan) + epoch(plan, 1)
    numbers = random.Random(0).choices(range(len(in_sequence)), k=6)
    for number in [*numbers, len(in_sequence) - 1]:
        fresh = BatchPlan(corpora[name], batch_tokens, seed=4)
        assert fresh.batch(number).tolist() == in_sequence[number]


def test_batches_do_not_depend_on_earlier_calls(corpora: dict[str, TokenShards]) -> None:
    name = "like text, several pools"
    in_sequence = epoch(BatchPlan(corpora[name], 100, seed=4))
    jumping = BatchPlan(corpora[name], 100, seed=4)
    order = random.Random(1).sample(range(len(in_sequence)), 40)
    assert [jumping.batch(number).tolist() for number in order] == [in_sequence[number] for number in order]


def test_the_corpora_cover_one_pool_and_several(corpora: dict[str, TokenShards]) -> None:
    pools = {name: BatchPlan(corpora[name], CORPORA[name][1], seed=1).pools for name in CORPORA}
    assert pools["each pair fills a batch"] == 1
    assert pools["like text, several pools"] > 5


@pytest.mark.parametrize("name", ["unrelated lengths", "like text", "like text, several pools"])
def test_other_seeds_and_epochs_have_other_batches(name: str, corpora: dict[str, TokenShards]) -> None:
    batch_tokens = CORPORA[name][1]
    one, other = (BatchPlan(corpora[name], batch_tokens, seed) for seed in (1, 2))
    orders = [epoch(one, 0), epoch(one, 1), epoch(one, 2), epoch(other, 0), epoch(other, 1)]
    for n, order in enumerate(orders):
        for later in orders[n + 1 :]:
            assert order != later
            same = set(map(tuple, map(sorted, order))) & set(map(tuple, map(sorted, later)))
            assert len(same) < len(order) / 2, "most batches should have other pairs, not only another order"


def test_batches_are_not_in_order_of_length(corpora: dict[str, TokenShards]) -> None:
    lengths, batch_tokens = CORPORA["like text"]
    batches = epoch(BatchPlan(corpora["like text"], batch_tokens, seed=1))
    means = [sum(lengths[pair][1] for pair in batch) / len(batch) for batch in batches]
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < 0.4


def test_every_pool_has_its_own_order_of_batches(corpora: dict[str, TokenShards]) -> None:
    name = "like text, several pools"
    lengths, batch_tokens = CORPORA[name]
    plan = BatchPlan(corpora[name], batch_tokens, seed=1)
    means = [
        [
            np.mean([lengths[pair][1] for pair in plan.batch(pool * plan.batches_per_pool + n)])
            for n in range(plan.batches_per_pool)
        ]
        for pool in range(3)
    ]
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert abs(np.corrcoef(means[one], means[other])[0, 1]) < 0.4


def test_pairs_of_a_batch_have_similar_lengths(corpora: dict[str, TokenShards]) -> None:
    lengths, batch_tokens = CORPORA["like text, several pools"]
    batches = epoch(BatchPlan(corpora["like text, several pools"], batch_tokens, seed=1))
    longer = [[max(lengths[pair]) for pair in batch] for batch in batches]
    corpus_spread = np.std([length for batch in longer for length in batch])
    assert np.mean([np.std(batch) for batch in longer]) < 0.1 * corpus_spread
    assert np.median([max(batch) - min(batch) for batch in longer]) <= 2


def test_both_sides_of_a_batch_are_filled_equally(tmp_path: Path) -> None:
    lengths = [
        (max(1, src), max(1, tgt)) for src, tgt in np.random.default_rng(0).normal(20, 4, (40_000, 2)).astype(int)
    ]
    batch_tokens = 4000
    batches = epoch(BatchPlan(write_corpus(tmp_path, lengths, 10_000), batch_tokens, seed=1))
    imbalances = [abs(src - tgt) / batch_tokens for src, tgt in (tokens_of(batch, lengths) for batch in batches)]
    assert np.mean(imbalances) < 0.03


def test_batches_of_a_big_corpus_are_well_filled(tmp_path: Path) -> None:
    lengths, batch_tokens = like_text(40_000), 1500
    plan = BatchPlan(write_corpus(tmp_path, lengths, 10_000), batch_tokens, seed=1)
    fills = [max(tokens_of(batch, lengths)) / batch_tokens for batch in epoch(plan)]
    assert plan.pools > 1
    assert np.mean(fills) > 0.9


@pytest.mark.parametrize("longest", [(12, 5), (5, 12)], ids=["source", "target"])
def test_a_budget_below_the_longest_sentence_and_its_end_marker_is_an_error(
    longest: tuple[int, int], tmp_path: Path
) -> None:
    shards = write_corpus(tmp_path, [(3, 4), longest, (2, 2)])
    with pytest.raises(ConfigError, match="batch_tokens"):
        BatchPlan(shards, 12, seed=1)
    plan = BatchPlan(shards, 13, seed=1)
    assert sorted(pair for batch in epoch(plan) for pair in batch) == [0, 1, 2]


def with_rare_long_ones(pairs: int, seed: int) -> Lengths:
    """One pair in a hundred is much longer than the rest, so pools differ much in their number of tokens."""
    rng = random.Random(seed)
    return [(250, 250) if rng.random() < 0.01 else (1, 1) for _ in range(pairs)]


@pytest.mark.parametrize("seed", range(2))
def test_the_budget_holds_even_if_pools_differ_much(seed: int, tmp_path: Path) -> None:
    lengths, batch_tokens = with_rare_long_ones(40_000, seed), 300
    plan = BatchPlan(write_corpus(tmp_path, lengths, 10_000), batch_tokens, seed)
    batches = epoch(plan)
    assert plan.pools > 5
    assert max(max(tokens_of(batch, lengths)) for batch in batches) <= batch_tokens


@pytest.mark.parametrize("seed", range(2))
def test_no_pair_is_left_out_even_if_pools_differ_much(seed: int, tmp_path: Path) -> None:
    lengths, batch_tokens = with_rare_long_ones(40_000, seed), 300
    plan = BatchPlan(write_corpus(tmp_path, lengths, 10_000), batch_tokens, seed)
    drawn = sorted(pair for batch in epoch(plan) for pair in batch)
    assert len(set(drawn)) == len(drawn), "no pair is drawn twice"
    assert len(drawn) == len(lengths)


def test_a_budget_of_few_tokens_terminates(tmp_path: Path) -> None:
    plan = BatchPlan(write_corpus(tmp_path, [(1, 1)] * 5), batch_tokens=3, seed=1)
    assert sorted(pair for batch in epoch(plan) for pair in batch) == list(range(5))


@pytest.mark.parametrize("streams", [("text",), ("a", "b", "c")])
def test_any_number_of_streams_is_planned_within_the_budget_of_each(tmp_path: Path, streams: tuple[str, ...]) -> None:
    lengths = np.random.default_rng(0).integers(1, 30, (2000, len(streams)))
    for number, part in enumerate((lengths[:1500], lengths[1500:])):
        sides = [[[n] * int(length) for n, length in enumerate(stream)] for stream in part.T]
        write_shard(tmp_path, number, sides, 65536, streams)
    write_index(tmp_path, {}, streams)
    shards = TokenShards(tmp_path)
    assert shards.mean_lengths == pytest.approx(tuple(lengths.mean(axis=0)))
    (pair,) = shards.pairs(np.array([1507]))
    assert [ids.tolist() for ids in pair] == [[7] * length for length in lengths[1507]]
    plan = BatchPlan(shards, batch_tokens=200, seed=1)
    batches = epoch(plan)
    assert sorted(pair for batch in batches for pair in batch) == list(range(2000))
    assert max((lengths[batch] + 1).sum(axis=0).max() for batch in batches) <= 200
    longest = [lengths[batch].max(axis=1) for batch in batches]
    assert np.mean([np.std(batch) for batch in longest]) < 0.1 * np.std(lengths.max(axis=1))


def test_one_stream_is_sorted_by_length_and_the_sort_is_stable(tmp_path: Path) -> None:
    write_shard(tmp_path, 0, [[[1] * length for length in (3, 1, 3, 2, 1)]], 350, ["text"])
    write_index(tmp_path, {}, ["text"])
    shards = TokenShards(tmp_path)
    assert shards.sorted_pairs(np.arange(5)).tolist() == [1, 4, 3, 0, 2]
    assert shards.sorted_lengths(np.arange(5)).tolist() == [[1], [1], [2], [3], [3]]
    assert shards.index["streams"] == ["text"]

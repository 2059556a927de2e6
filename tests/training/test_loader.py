"""Batches by number: reproducible and within the budget, also with BPE-dropout."""

import threading
from collections.abc import Callable
from contextlib import closing
from itertools import islice, pairwise
from typing import Any

import pytest
import torch

from transduce.data.batch import Batch
from transduce.data.plan import BatchPlan
from transduce.data.variation import Variation
from transduce.tokenizers.tokenizer import EOS, Tokenizer
from transduce.training.loader import Loader
from transduce.translation.task import Translate

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory, toy_pairs: Any, make_shards: Callable[..., Any]) -> BatchPlan:
    shards = make_shards(tmp_path_factory.mktemp("loader") / "shards", toy_pairs)
    return BatchPlan(shards, batch_tokens=200, seed=3)


def same(a: Batch, b: Batch) -> bool:
    return (
        all(torch.equal(x, y) for x, y in zip(a.tensors, b.tensors, strict=True))
        and all(a[name].segments.longest == b[name].segments.longest for name in ("src", "tgt"))
        and a.count == b.count
    )


def ahead(loader: Loader, start: int, count: int) -> list[Batch]:
    """Prefetched batches. Waits for the thread, because SentencePiece has one random seed per process."""
    before = set(threading.enumerate())
    with closing(loader.ahead(start)) as batches:
        result = [parts[0] for parts in islice(batches, count)]
    for thread in set(threading.enumerate()) - before:
        thread.join()
    return result


def sources(batch: Batch, tokenizer: Tokenizer) -> list[str]:
    offsets = batch["src"].segments.offsets_B1.tolist()
    pieces = [batch["src"].ids_N[start:end].tolist() for start, end in pairwise(offsets)]
    assert all(piece[-1] == EOS for piece in pieces)
    return [tokenizer.decode(piece) for piece in pieces]


def targets(batch: Batch, tokenizer: Tokenizer) -> list[str]:
    offsets = batch["tgt"].segments.offsets_B1.tolist()
    return [tokenizer.decode(batch.labels_L[start:end].tolist()) for start, end in pairwise(offsets)]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("start", [0, 1, 7, 1000])
def test_prefetched_batches_equal_those_made_by_number(
    plan: BatchPlan, toy_tokenizer: Tokenizer, dropout: float, start: int
) -> None:
    loader = Loader(Translate(), plan, Variation(toy_tokenizer, dropout), CPU)
    expected = [loader.batch(number)[0] for number in range(start, start + 6)]
    assert all(same(a, b) for a, b in zip(ahead(loader, start, 6), expected, strict=True))


def test_a_resumed_loader_continues_with_the_next_batch(plan: BatchPlan, toy_tokenizer: Tokenizer) -> None:
    batches = ahead(Loader(Translate(), plan, Variation(toy_tokenizer, 0.2), CPU), 0, 8)
    rest = ahead(Loader(Translate(), plan, Variation(toy_tokenizer, 0.2), CPU), 5, 3)
    assert all(same(a, b) for a, b in zip(batches[5:], rest, strict=True))
    assert not same(batches[0], batches[5])


def test_one_epoch_has_every_pair_once(plan: BatchPlan, toy_tokenizer: Tokenizer, toy_pairs: Any) -> None:
    loader = Loader(Translate(), plan, Variation(toy_tokenizer), CPU)
    pairs = []
    for number in range(plan.batches_per_epoch):
        batch = loader.batch(number)[0]
        pairs += zip(sources(batch, toy_tokenizer), targets(batch, toy_tokenizer), strict=True)
    assert sorted(pairs) == sorted(toy_pairs)


def test_bpe_dropout_preserves_the_text_and_its_order(plan: BatchPlan, toy_tokenizer: Tokenizer) -> None:
    plain, cut = (Loader(Translate(), plan, Variation(toy_tokenizer, dropout), CPU) for dropout in (0.0, 0.3))
    for number in range(plan.batches_per_epoch):
        a, b = plain.batch(number)[0], cut.batch(number)[0]
        assert sources(a, toy_tokenizer) == sources(b, toy_tokenizer)
        assert targets(a, toy_tokenizer) == targets(b, toy_tokenizer)


def test_bpe_dropout_changes_most_of_the_sentences_that_it_would_change_without_a_budget(
    plan: BatchPlan, toy_tokenizer: Tokenizer, toy_pairs: Any
) -> None:
    texts = [src for src, _ in toy_pairs]
    drawn = toy_tokenizer.encode_with_dropout(texts, 0.3, seed=1)
    would_differ = sum(ids != toy_tokenizer.encode(text) for ids, text in zip(drawn, texts, strict=True))
    larger = BatchPlan(plan.shards, plan.batch_tokens, plan.seed, Variation(toy_tokenizer, 0.3).growth(plan.shards))
    loader = Loader(Translate(), larger, Variation(toy_tokenizer, 0.3), CPU)
    differ = 0
    for number in range(larger.batches_per_epoch):
        batch = loader.batch(number)[0]
        offsets = batch["src"].segments.offsets_B1.tolist()
        for text, (start, end) in zip(sources(batch, toy_tokenizer), pairwise(offsets), strict=True):
            differ += batch["src"].ids_N[start : end - 1].tolist() != toy_tokenizer.encode(text)
    assert would_differ > 100
    assert differ > would_differ / 2


def test_bpe_dropout_segments_a_pair_differently_in_the_next_epoch(plan: BatchPlan, toy_tokenizer: Tokenizer) -> None:
    loader = Loader(Translate(), plan, Variation(toy_tokenizer, 0.3), CPU)

    def lengths_by_source(epoch: int) -> dict[str, list[int]]:
        result = {}
        for number in range(epoch * plan.batches_per_epoch, (epoch + 1) * plan.batches_per_epoch):
            batch = loader.batch(number)[0]
            lengths = batch["src"].segments.lengths_B.tolist()
            result |= dict(zip(sources(batch, toy_tokenizer), lengths, strict=True))
        return result

    assert lengths_by_source(0).keys() == lengths_by_source(1).keys()
    assert lengths_by_source(0) != lengths_by_source(1)


@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.9])
def test_no_batch_exceeds_the_budget(plan: BatchPlan, toy_tokenizer: Tokenizer, dropout: float) -> None:
    loader = Loader(Translate(), plan, Variation(toy_tokenizer, dropout), CPU)
    for number in range(plan.batches_per_epoch):
        batch = loader.batch(number)[0]
        assert max(len(batch["src"].ids_N), len(batch["tgt"].ids_N)) <= plan.batch_tokens
        assert batch.count == len(batch.labels_L)


@pytest.mark.parametrize("dropout", [0.0, 0.9])
def test_batches_of_fixed_shape_have_equal_shapes(plan: BatchPlan, toy_tokenizer: Tokenizer, dropout: float) -> None:
    longest = plan.shards.index["max_length"] + 1
    fixed = Loader(Translate(), plan, Variation(toy_tokenizer, dropout), CPU, fixed_length=longest)
    shapes = set()
    for number in range(plan.batches_per_epoch):
        batch = fixed.batch(number)[0]
        shapes.add(
            (len(batch["src"].ids_N), len(batch["tgt"].ids_N), len(batch["src"].segments), len(batch["tgt"].segments))
        )
        for segments in (batch["src"].segments, batch["tgt"].segments):
            assert segments.longest == longest
            assert int(segments.lengths_B.max()) <= longest
    assert len(shapes) == 1
    assert next(iter(shapes))[:2] == (plan.batch_tokens, plan.batch_tokens)


def test_an_error_in_the_thread_is_raised_in_the_loop(
    plan: BatchPlan, toy_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Loader, number: int, examples: Any) -> Batch:
        raise OSError(f"disk failure at {number}")

    monkeypatch.setattr(Loader, "_batch", fail)
    with (
        closing(Loader(Translate(), plan, Variation(toy_tokenizer), CPU).ahead(4)) as batches,
        pytest.raises(OSError, match="disk failure at 4"),
    ):
        next(batches)


def test_an_error_at_the_start_of_the_thread_is_raised_in_the_loop(
    plan: BatchPlan, toy_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise OSError("no process can be started")

    monkeypatch.setattr("transduce.training.loader.computed_ahead", fail)
    with (
        closing(Loader(Translate(), plan, Variation(toy_tokenizer), CPU).ahead(0)) as batches,
        pytest.raises(OSError, match="no process can be started"),
    ):
        next(batches)


def test_the_thread_has_ended_when_the_batches_are_closed(
    plan: BatchPlan, toy_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A thread that is still in SentencePiece when the interpreter exits aborts the process (SIGABRT).
    make, working, resume = Loader._batch, threading.Event(), threading.Event()

    def slow(loader: Loader, number: int, examples: Any) -> list[Batch]:
        if number == 1:
            working.set()
            resume.wait(0.3)
        return make(loader, number, examples)

    monkeypatch.setattr(Loader, "_batch", slow)
    before = set(threading.enumerate())
    with closing(Loader(Translate(), plan, Variation(toy_tokenizer), CPU).ahead(0)) as batches:
        next(batches)
        assert working.wait(120)
    left = set(threading.enumerate()) - before
    resume.set()
    assert left == set()

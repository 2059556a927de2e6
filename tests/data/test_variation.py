"""Varied examples: equal in every process, within the budget, and different in every epoch."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transduce.data.augment import AugmentConfig
from transduce.data.plan import BatchPlan
from transduce.data.variation import Variation, computed_ahead
from transduce.errors import DataError
from transduce.tokenizers.tokenizer import Tokenizer

AUGMENT = AugmentConfig(upper=0.2, typos=0.2, spans=0.3)


@pytest.fixture
def plan(tmp_path: Path, toy_pairs: Any, toy_tokenizer: Tokenizer, make_shards: Callable[..., Any]) -> BatchPlan:
    shards = make_shards(tmp_path / "shards", toy_pairs)
    toy_tokenizer.save(shards.folder / "tokenizer.model")
    return BatchPlan(shards, 200, seed=3, growth=Variation(toy_tokenizer, augment=AUGMENT).growth(shards))


def lists(examples: Any) -> list[tuple[list[int], ...]]:
    return [tuple(np.asarray(ids).tolist() for ids in example) for example in examples]


def test_worker_processes_give_the_same_examples(plan: BatchPlan, toy_tokenizer: Tokenizer) -> None:
    variation = Variation(toy_tokenizer, augment=AUGMENT)
    with computed_ahead(variation, plan, start=5, workers=2) as examples:
        for number in range(5, 10):
            assert lists(examples(number)) == lists(variation.examples(plan, number))


def test_a_worker_that_fails_is_reported(plan: BatchPlan, toy_tokenizer: Tokenizer) -> None:
    variation = Variation(toy_tokenizer, augment=AUGMENT)
    (plan.shards.folder / "tokenizer.model").write_bytes(b"damaged")
    with computed_ahead(variation, plan, start=0, workers=1) as examples, pytest.raises(DataError, match="ended"):
        examples(0)


def test_some_examples_change_and_all_fit(plan: BatchPlan, toy_tokenizer: Tokenizer) -> None:
    variation = Variation(toy_tokenizer, augment=AUGMENT)
    changed = total = 0
    for number in islice(range(plan.batches_per_epoch), 10):
        plain = lists(plan.shards.pairs(plan.batch(number)))
        varied = lists(variation.examples(plan, number))
        assert max(sum(len(ids) + 1 for ids in stream) for stream in zip(*varied, strict=True)) <= 200
        changed += sum(a != b for a, b in zip(plain, varied, strict=True))
        total += len(plain)
    assert 0.3 * total < changed < 0.8 * total


def test_without_settings_examples_are_those_of_the_shards(plan: BatchPlan, toy_tokenizer: Tokenizer) -> None:
    variation = Variation(toy_tokenizer)
    assert not variation.enabled
    assert variation.growth(plan.shards) == 1.0
    assert lists(variation.examples(plan, 0)) == lists(plan.shards.pairs(plan.batch(0)))

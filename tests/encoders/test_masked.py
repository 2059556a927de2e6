"""The task masked against its definition (BERT, section 3.1)."""

from typing import Any

import numpy as np
import pytest

from transduce.data.packing import fill
from transduce.encoders.pretraining import Masked, MaskedConfig
from transduce.errors import ConfigError
from transduce.tokenizers.symbols import MASK
from transduce.tokenizers.tokenizer import BOS, EOS, PAD


@pytest.fixture
def task(toy_tokenizer: Any) -> Masked:
    task = Masked()
    task.set_tokenizer(toy_tokenizer)
    return task


def random_examples(tokenizer: Any, count: int, seed: int = 0) -> list[tuple[np.ndarray]]:
    chance, first = np.random.default_rng(seed), max(tokenizer.symbol_ids.values()) + 1
    return [(chance.integers(first, tokenizer.vocab_size, chance.integers(1, 60)),) for _ in range(count)]


def test_a_text_is_surrounded_by_markers_and_changed_only_at_the_labels(task: Masked, toy_tokenizer: Any) -> None:
    examples = random_examples(toy_tokenizer, 200)
    batch = task.pack(examples, seed=5)
    assert batch.work == sum(len(ids) for (ids,) in examples)  # the speed counts what is read
    original = np.concatenate([[BOS, *ids, EOS] for (ids,) in examples])
    text, positions = batch["text"], batch.positions_L
    assert positions is not None
    assert text.offsets_B1.tolist() == np.cumsum([0, *(len(ids) + 2 for (ids,) in examples)]).tolist()
    assert batch.count == len(batch.labels_L) == len(set(positions.tolist()))
    assert (original[positions] == batch.labels_L).all()
    assert (batch.labels_L > EOS).all()
    restored = text.ids_N.copy()
    restored[positions] = batch.labels_L
    assert (restored == original).all()


def test_shares_of_chosen_replaced_random_and_kept_tokens(task: Masked, toy_tokenizer: Any) -> None:
    examples = random_examples(toy_tokenizer, 5000)
    batch = task.pack(examples, seed=1)
    sizes = np.array([len(ids) for (ids,) in examples])
    counts = np.histogram(batch.positions_L, batch["text"].offsets_B1)[0]
    assert ((counts == np.maximum(1, np.floor(0.15 * sizes))) | (counts == np.maximum(1, np.ceil(0.15 * sizes)))).all()
    long = sizes >= 20  # shorter texts have at least one label, which is more than 15%
    assert counts[long].sum() / sizes[long].sum() == pytest.approx(0.15, abs=0.003)
    assert batch.positions_L is not None
    now = batch["text"].ids_N[batch.positions_L]
    replaced, kept = now == toy_tokenizer.symbol_ids[MASK], now == batch.labels_L
    assert replaced.mean() == pytest.approx(0.8, abs=0.01)
    assert kept.mean() == pytest.approx(0.1, abs=0.01)
    drawn = now[~replaced & ~kept]
    assert len(drawn) / len(now) == pytest.approx(0.1, abs=0.01)
    assert drawn.min() > EOS
    assert not set(drawn.tolist()) & set(toy_tokenizer.symbol_ids.values())
    assert len(set(drawn.tolist())) > 300  # of the 430 that are possible


def test_masks_are_a_function_of_example_and_seed(task: Masked, toy_tokenizer: Any) -> None:
    examples = random_examples(toy_tokenizer, 40)
    whole, first, second = (task.pack(part, seed=2) for part in (examples, examples[:15], examples[15:]))
    assert (np.concatenate([first["text"].ids_N, second["text"].ids_N]) == whole["text"].ids_N).all()
    assert (np.concatenate([first.labels_L, second.labels_L]) == whole.labels_L).all()
    assert (task.pack(examples, seed=3)["text"].ids_N != whole["text"].ids_N).any()


def test_few_labels_go_through_the_vocabulary_in_batches_of_fixed_shape(task: Masked, toy_tokenizer: Any) -> None:
    batch = task.pack(random_examples(toy_tokenizer, 100), seed=1)
    filled = fill(batch, 8192, 200, 64, max_labels=task.max_labels)
    assert filled.positions_L is not None
    assert len(filled.labels_L) == len(filled.positions_L) == task.max_labels(8192, 300) == 1654  # 20% and 16 more
    assert (filled.count, (filled.labels_L != PAD).sum()) == (batch.count, batch.count)
    crowded = fill(batch, 8192, 200, 64, max_labels=lambda tokens, segments: 50)
    assert (len(crowded.labels_L), crowded.count) == (50, 50)


def test_the_share_is_a_setting(toy_tokenizer: Any) -> None:
    task = Masked(MaskedConfig(share=0.5))
    task.set_tokenizer(toy_tokenizer)
    examples = random_examples(toy_tokenizer, 500)
    assert task.pack(examples, 1).count / sum(len(ids) for (ids,) in examples) == pytest.approx(0.5, abs=0.01)
    with pytest.raises(ConfigError, match="share must be above 0 and below 1"):
        MaskedConfig(share=1.0)

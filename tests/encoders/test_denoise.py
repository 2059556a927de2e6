"""The task denoise against its definitions (T5, section 3.1.4; BART, section 2.2)."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from transduce.data.packing import PackedBatch
from transduce.encoders.pretraining import Denoise, DenoiseConfig
from transduce.errors import ConfigError
from transduce.tokenizers.symbols import MASK, SENTINELS
from transduce.tokenizers.tokenizer import BOS, EOS, Tokenizer, TokenizerConfig

Examples = list[tuple[np.ndarray]]


@pytest.fixture(scope="module")
def tokenizer(toy_pairs: Any) -> Tokenizer:
    config = TokenizerConfig(vocab_size=600, symbols=tuple(SENTINELS))
    return Tokenizer.train((text for pair in toy_pairs for text in pair), config)


def make_task(tokenizer: Tokenizer, **settings: Any) -> Denoise:
    task = Denoise(DenoiseConfig(**settings))
    task.set_tokenizer(tokenizer)
    return task


def random_examples(count: int, longest: int = 80) -> Examples:
    """Ids that are not symbols: the number of each symbol is below 400."""
    chance = np.random.default_rng(0)
    return [(chance.integers(400, 600, chance.integers(1, longest)),) for _ in range(count)]


def sequences(batch: PackedBatch, name: str) -> list[list[int]]:
    ids = batch.labels_L if name == "labels" else batch[name].ids_N
    offsets = batch["tgt" if name == "labels" else name].offsets_B1
    return [ids[start:end].tolist() for start, end in pairwise(offsets)]


def test_t5_source_and_target_restore_the_text(tokenizer: Tokenizer) -> None:
    examples, marks = random_examples(300), [tokenizer.symbol_ids[symbol] for symbol in SENTINELS]
    batch = make_task(tokenizer).pack(examples, seed=4)
    shares, spans = [], []
    for (ids,), source, target in zip(examples, sequences(batch, "src"), sequences(batch, "labels"), strict=True):
        assert (source.pop(), target.pop()) == (EOS, EOS)
        used = [token for token in source if token in marks]
        assert used == [token for token in target if token in marks] == marks[: len(used)]
        starts = [target.index(mark) for mark in used]
        of_mark = {
            mark: target[start + 1 : end] for mark, start, end in zip(used, starts, [*starts[1:], None], strict=True)
        }
        restored = [token for one in source for token in of_mark.get(one, [one])]
        assert restored == ids.tolist()
        assert all(of_mark.values())
        assert not any(first in marks and second in marks for first, second in pairwise(source))
        hidden = sum(map(len, of_mark.values()))
        assert hidden == max(1, round(len(ids) * 0.15))
        if len(ids) >= 20:
            shares.append(hidden / len(ids))
            spans.append(hidden / len(of_mark))
    assert np.mean(shares) == pytest.approx(0.15, abs=0.005)
    assert np.mean(spans) == pytest.approx(3, abs=0.25)


def test_t5_spans_are_anywhere_and_of_any_length(tokenizer: Tokenizer) -> None:
    ids = np.arange(400, 440)
    task = make_task(tokenizer)
    starts, lengths = np.zeros(40), np.zeros(8)
    for seed in range(2000):
        (source,) = sequences(task.pack([(ids,)], seed), "src")
        gone = sorted(set(ids.tolist()) - set(source))
        runs = np.split(gone, np.flatnonzero(np.diff(gone) != 1) + 1)
        assert len(runs) == 2
        for run in runs:
            starts[run[0] - 400] += 1
            lengths[len(run)] += 1
    assert (starts[:34] > 0).all()
    assert lengths[1:6].tolist() == pytest.approx([800] * 5, rel=0.15)  # 6 tokens in 2 spans: 1 + 5, 2 + 4, 3 + 3 ...


def test_bart_source_hides_spans_of_the_text_and_the_target_is_the_text(tokenizer: Tokenizer) -> None:
    examples, mask = random_examples(3000), tokenizer.symbol_ids[MASK]
    batch = make_task(tokenizer, kind="bart").pack(examples, seed=4)
    assert sequences(batch, "labels") == [[*ids.tolist(), EOS] for (ids,) in examples]
    hidden_of_spans = []
    for (ids,), source in zip(examples, sequences(batch, "src"), strict=True):
        assert source.pop() == EOS
        kept = [token for token in source if token != mask]
        assert len(ids) - len(kept) == max(1, round(len(ids) * 0.3))
        rest = iter(ids.tolist())
        assert all(token in rest for token in kept)  # in the order of the text
        assert len(source) <= len(ids)
        if len(ids) >= 40:
            hidden_of_spans.append(((len(ids) - len(kept)), source.count(mask)))
    hidden, spans = map(sum, zip(*hidden_of_spans, strict=True))
    # The last span of a text is cut off, so the mean is a little below that of the Poisson distribution.
    assert 2.5 < hidden / spans < 3


def test_bart_spans_have_poisson_lengths(tokenizer: Tokenizer) -> None:
    """In a long text of increasing tokens, the length of every span without an adjacent span is visible."""
    ids, mask = np.arange(100_000, 140_000), tokenizer.symbol_ids[MASK]
    (source,) = sequences(make_task(tokenizer, kind="bart").pack([(ids,)], seed=1), "src")
    around = zip(source, source[1:], source[2:], strict=False)
    lengths = [after - before - 1 for before, one, after in around if one == mask and min(before, after) >= ids[0]]
    assert len(lengths) > 2000
    for length in range(5):
        expected = 3**length * np.exp(-3) / math.factorial(length)
        assert np.mean(np.array(lengths) == length) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_noise_is_a_function_of_example_and_seed(tokenizer: Tokenizer, kind: str) -> None:
    task, examples = make_task(tokenizer, kind=kind), random_examples(30)
    whole, first, second = (task.pack(part, seed=2) for part in (examples, examples[:11], examples[11:]))
    for name in ("src", "tgt", "labels"):
        assert sequences(first, name) + sequences(second, name) == sequences(whole, name)
    assert sequences(task.pack(examples, seed=3), "src") != sequences(whole, "src")


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_no_stream_needs_more_room_than_planned(tokenizer: Tokenizer, kind: str) -> None:
    examples = [(np.arange(400, 400 + size),) for size in [1, 1, 2, 3, 4, 5, 6, 7, 8, 50, 190]]
    for seed in range(200):
        batch = make_task(tokenizer, kind=kind).pack(examples, seed)
        for (ids,), *streams in zip(examples, sequences(batch, "src"), sequences(batch, "tgt"), strict=True):
            assert max(map(len, streams)) <= len(ids) + Denoise.markers
        assert all(sequence[0] == BOS for sequence in sequences(batch, "tgt"))


def test_there_are_never_more_spans_than_symbols(tokenizer: Tokenizer) -> None:
    ids = np.random.default_rng(0).integers(400, 600, 4000)
    (source,) = sequences(make_task(tokenizer).pack([(ids,)], seed=1), "src")
    assert len(source) == 4000 - 600 + len(SENTINELS) + 1


def test_settings_are_checked() -> None:
    for settings, message in (({"share": 0.0}, "share"), ({"mean_span": 0.5}, "mean_span must be between 1 and 100")):
        with pytest.raises(ConfigError, match=message):
            DenoiseConfig(**settings)  # type: ignore[arg-type]

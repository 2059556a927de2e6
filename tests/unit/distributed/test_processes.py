"""What several processes share: every batch in parts that are the whole, and sums in place of their own gradients."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.data.batch import Batch
from transduce.data.plan import BatchPlan
from transduce.distributed import processes as processes_module
from transduce.distributed.processes import SINGLE_PROCESS, Processes
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.runs.recipe import TrainConfig, load_recipe
from transduce.tasks.translate import Translate
from transduce.text.tokenizer import PAD, Tokenizer
from transduce.training.learner import Learner
from transduce.training.loader import Loader

CPU = torch.device("cpu")


def pairs_of(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """The pairs of a batch that something is asked of."""
    found = []
    sides = [pairwise(segments.offsets_B1.tolist()) for segments in (batch["src"].segments, batch["tgt"].segments)]
    for (src_start, src_end), (tgt_start, tgt_end) in zip(*sides, strict=True):
        labels = batch.labels_L[tgt_start:tgt_end].tolist()
        if any(label != PAD for label in labels):
            found.append((batch["src"].ids_N[src_start:src_end].tolist(), labels))
    return found


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("fixed_length", [None, 60])
@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_shares_of_a_batch_are_the_batch(
    tmp_path: Path,
    toy_pairs: Any,
    toy_tokenizer: Tokenizer,
    make_shards: Callable[..., Any],
    count: int,
    fixed_length: int | None,
    split: int,
    dropout: float,
) -> None:
    plan = BatchPlan(
        make_shards(tmp_path / "shards", toy_pairs), batch_tokens=100, seed=1, growth=1.3 if dropout else 1.0
    )
    alone = Loader(Translate(), plan, toy_tokenizer, CPU, dropout)
    together = [
        Loader(Translate(), plan, toy_tokenizer, CPU, dropout, fixed_length, split, Processes(rank, count))
        for rank in range(count)
    ]
    for number in range(6):
        shares = [loader.batch(number) for loader in together]
        assert all(shares)
        (whole,) = alone.batch(number)
        assert sorted(pair for parts in shares for part in parts for pair in pairs_of(part)) == sorted(pairs_of(whole))
        assert sum(part.count for parts in shares for part in parts) == whole.count
        if fixed_length:
            assert {
                (len(part["src"].ids_N), len(part["tgt"].ids_N), len(part["src"].segments))
                for parts in shares
                for part in parts
            } == {(together[0].part_tokens, together[0].part_tokens, len(shares[0][0]["src"].segments))}


def test_a_process_without_a_pair_of_its_own_asks_nothing(
    tmp_path: Path, toy_tokenizer: Tokenizer, make_shards: Callable[..., Any]
) -> None:
    plan = BatchPlan(make_shards(tmp_path / "shards", [("ba bo", "bo ba")]), batch_tokens=20, seed=1)
    (first,), (second,) = (
        Loader(Translate(), plan, toy_tokenizer, CPU, processes=Processes(rank, 2)).batch(0) for rank in (0, 1)
    )
    assert first.count > 0
    assert second.count == 0
    assert set(second.labels_L.tolist()) == {PAD}
    recipe = load_recipe(None, "tiny", {}, [])
    model = EncoderDecoder(recipe.model, toy_tokenizer.vocab_size)
    learner = Learner(model, torch.optim.Adam(model.parameters()), Translate(), TrainConfig())
    assert learner.compute(second).tolist() == [0.0, 0.0]
    assert all(weight.grad is not None and not weight.grad.any() for weight in model.parameters())


@pytest.mark.parametrize("half", [False, True])
def test_two_processes_with_the_same_gradients_take_the_step_of_one(
    tmp_path: Path,
    toy_pairs: Any,
    toy_tokenizer: Tokenizer,
    make_shards: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    half: bool,
) -> None:
    """The sum over two processes is stood in for by twice what this one has."""
    monkeypatch.setattr(processes_module, "_reduce", lambda tensor: tensor.mul_(2))
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 1, "dropout": 0.0}
    recipe = load_recipe(None, "tiny", {}, [f"model.{name}={value}" for name, value in sizes.items()])
    plan = BatchPlan(make_shards(tmp_path / "shards", toy_pairs), batch_tokens=80, seed=1)
    parts = Loader(Translate(), plan, toy_tokenizer, CPU).batch(0)
    found = []
    for processes in (SINGLE_PROCESS, Processes(0, 2)):
        torch.manual_seed(1)
        model = EncoderDecoder(recipe.model, toy_tokenizer.vocab_size)
        optimizer = torch.optim.Adam(model.parameters())
        config = TrainConfig(clip_norm=0.5, precision="bfloat16" if half else "float32")
        learner = Learner(model, optimizer, Translate(), config, processes)
        for number in (1, 2):
            learner.compute(parts[0])
            norm = learner.update(number, 1e-3, processes.count * parts[0].count)
        found.append((norm, *model.parameters()))
    for alone, together in zip(*found, strict=True):
        assert torch.equal(alone, together)


def test_one_process_alone_has_nobody_to_ask() -> None:
    tensor = torch.ones(3)
    SINGLE_PROCESS.all_reduce([tensor])
    SINGLE_PROCESS.wait()
    assert tensor.tolist() == [1, 1, 1]
    assert SINGLE_PROCESS.total(2, 3.5) == [2, 3.5]
    assert SINGLE_PROCESS.any(True)
    assert not SINGLE_PROCESS.any(False)
    assert SINGLE_PROCESS.gather(["a"]) == ["a"]
    assert list(range(5))[SINGLE_PROCESS.share] == list(range(5))
    assert SINGLE_PROCESS.is_main

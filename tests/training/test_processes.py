"""Several processes: their shares of a batch, and the sum of their gradients."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.data.batch import Batch
from transduce.data.plan import BatchPlan
from transduce.data.variation import Variation
from transduce.errors import RunError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.tokenizers.tokenizer import PAD, Tokenizer
from transduce.training import processes as processes_module
from transduce.training.adam import Adam
from transduce.training.learner import Learner
from transduce.training.loader import Loader
from transduce.training.processes import SINGLE_PROCESS, Processes
from transduce.training.recipe import load_recipe
from transduce.training.train_config import TrainConfig
from transduce.translation.task import Translate

CPU = torch.device("cpu")


def pairs_of(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """The pairs of a batch that have labels."""
    pairs = []
    sides = [pairwise(segments.offsets_B1.tolist()) for segments in (batch["src"].segments, batch["tgt"].segments)]
    for (src_start, src_end), (tgt_start, tgt_end) in zip(*sides, strict=True):
        labels = batch.labels_L[tgt_start:tgt_end].tolist()
        if any(label != PAD for label in labels):
            pairs.append((batch["src"].ids_N[src_start:src_end].tolist(), labels))
    return pairs


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("fixed_length", [None, 60])
@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_shares_of_all_processes_make_up_the_batch(
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
    single = Loader(Translate(), plan, Variation(toy_tokenizer, dropout), CPU)
    several = [
        Loader(Translate(), plan, Variation(toy_tokenizer, dropout), CPU, fixed_length, split, Processes(rank, count))
        for rank in range(count)
    ]
    for number in range(6):
        shares = [loader.batch(number) for loader in several]
        assert all(shares)
        (batch,) = single.batch(number)
        assert sorted(pair for parts in shares for part in parts for pair in pairs_of(part)) == sorted(pairs_of(batch))
        assert sum(part.count for parts in shares for part in parts) == batch.count
        if fixed_length:
            assert {
                (len(part["src"].ids_N), len(part["tgt"].ids_N), len(part["src"].segments))
                for parts in shares
                for part in parts
            } == {(several[0].part_tokens, several[0].part_tokens, len(shares[0][0]["src"].segments))}


def test_a_process_without_a_pair_has_zero_loss_and_gradients(
    tmp_path: Path, toy_tokenizer: Tokenizer, make_shards: Callable[..., Any]
) -> None:
    plan = BatchPlan(make_shards(tmp_path / "shards", [("ba bo", "bo ba")]), batch_tokens=20, seed=1)
    (first,), (second,) = (
        Loader(Translate(), plan, Variation(toy_tokenizer), CPU, processes=Processes(rank, 2)).batch(0)
        for rank in (0, 1)
    )
    assert first.count > 0
    assert second.count == 0
    assert set(second.labels_L.tolist()) == {PAD}
    recipe = load_recipe(None, "tiny", {}, [])
    model = EncoderDecoder(recipe.model, toy_tokenizer.vocab_size)
    learner = Learner(model, Adam(model.parameters()), Translate(), TrainConfig())
    assert learner.compute(second).tolist() == [0.0, 0.0]
    assert all(weight.grad is not None and not weight.grad.any() for weight in model.parameters())


@pytest.mark.parametrize("half", [False, True])
def test_two_processes_with_the_same_gradients_make_the_update_of_one(
    tmp_path: Path,
    toy_pairs: Any,
    toy_tokenizer: Tokenizer,
    make_shards: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    half: bool,
) -> None:
    """The sum over two processes is replaced by twice the tensor of this one."""
    monkeypatch.setattr(processes_module, "_reduce", lambda tensor: tensor.mul_(2))
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 1, "dropout": 0.0}
    recipe = load_recipe(None, "tiny", {}, [f"model.{name}={value}" for name, value in sizes.items()])
    plan = BatchPlan(make_shards(tmp_path / "shards", toy_pairs), batch_tokens=80, seed=1)
    parts = Loader(Translate(), plan, Variation(toy_tokenizer), CPU).batch(0)
    results = []
    for processes in (SINGLE_PROCESS, Processes(0, 2)):
        torch.manual_seed(1)
        model = EncoderDecoder(recipe.model, toy_tokenizer.vocab_size)
        optimizer = Adam(model.parameters())
        config = TrainConfig(clip_norm=0.5, precision="bfloat16" if half else "float32")
        learner = Learner(model, optimizer, Translate(), config, processes)
        for number in (1, 2):
            learner.compute(parts[0])
            norm = learner.update(number, 1e-3, processes.count * parts[0].count)
        # The gradient of the keys' bias is zero up to rounding, which Adam enlarges.
        results.append((norm, *(x for name, x in model.named_parameters() if not name.endswith("kv.bias"))))
    for single, double in zip(*results, strict=True):  # on a CPU, only one process has the fused Adam
        torch.testing.assert_close(single, double, rtol=1e-5, atol=1e-6)


def test_a_single_process_does_not_communicate() -> None:
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


def test_processes_with_different_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [torch.tensor([1.0, 2.0]), torch.zeros(3, 2).T]
    SINGLE_PROCESS.require_same(weights)
    others: list[Any] = []
    monkeypatch.setattr(Processes, "gather", lambda self, mine: mine + others)
    Processes(0, 2).require_same(weights)
    monkeypatch.setattr(Processes, "gather", lambda self, mine: others.append(mine[0]) or mine)
    Processes(1, 2).require_same([torch.tensor([1.0, 2.0000002]), weights[1]])
    monkeypatch.setattr(Processes, "gather", lambda self, mine: mine + others)
    with pytest.raises(RunError, match="begin with different weights; all machines need the same folder"):
        Processes(0, 2).require_same(weights)


GPUS = """
import torch, torch.distributed as dist
gpus = ({}, {})[rank]
torch.cuda.is_available, torch.cuda.device_count = lambda: gpus > 0, lambda: gpus
begin = dist.init_process_group
dist.init_process_group = lambda backend, **options: begin("gloo", **options)
"""


@pytest.mark.parametrize(("first", "second", "found"), [(1, 1, 1), (1, 0, 0)])
def test_all_processes_end_if_one_has_no_gpu(
    first: int, second: int, found: int, transduce: Any, tmp_path: Path
) -> None:
    (tmp_path / "pairs.tsv").write_text("a b c\td e f\n" * 40, encoding="utf-8")
    words = ["train", "--train", "pairs.tsv", "--valid", "pairs.tsv", "--out", "run"]
    outcome = transduce(*words, cwd=tmp_path, before=GPUS.format(first, second), processes=2)
    assert outcome.code == 2
    assert outcome.err.count(f"there are {found} GPUs for at least 2 processes; start one process per GPU") == 2

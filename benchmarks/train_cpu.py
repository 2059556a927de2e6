"""Training speed on a CPU: ours, torch.nn.Transformer and Hugging Face Marian, same sizes, same sentences.

    python benchmarks/train_cpu.py [--rounds 5] [--out results.json]

All three take turns, one batch each, in one process, so that a busy machine slows all of them alike. Only real target
tokens count. Everybody gets dropout, label smoothing and fused Adam; and batches once of sentences of similar lengths,
the best case for those who pad, once of sentences in no order.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from peers import HuggingFaceMarian, TorchTransformer, padded, peer_loss
from setting import describe, wmt_like_corpus
from torch import nn

from transduce.data.plan import BatchPlan
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.loss import smoothed_cross_entropy
from transduce.runs.recipe import Recipe, load_recipe
from transduce.tasks.translate import Translate
from transduce.training.loader import Batch, to_device


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    recipe = load_recipe(None, options.preset, {}, [])
    V = recipe.tokenizer.vocab_size
    setting = describe() | {
        "model": options.preset, "vocabulary": V, "batch tokens": recipe.train.batch_tokens, "rounds": options.rounds,
        "threads": torch.get_num_threads(), "seed": 1,
    }  # fmt: skip
    for key, value in setting.items():
        print(f"{key}: {value}")

    with tempfile.TemporaryDirectory() as folder:
        shards = wmt_like_corpus(Path(folder), 20_000, V, max_length=120)
        plan = BatchPlan(shards, recipe.train.batch_tokens, seed=1)
        similar = [plan.batch(number) for number in range(options.rounds + 1)]
        shuffled = np.array_split(np.random.default_rng(1).permutation(np.concatenate(similar)), len(similar))
        orders = {
            name: [to_device(Translate().pack(shards.pairs(numbers)), torch.device("cpu")) for numbers in batches]
            for name, batches in (("similar lengths", similar), ("mixed lengths", shuffled))
        }
    steps = training_steps(recipe)
    results = {name: measure(steps, batches) for name, batches in orders.items()}
    for name, rows in results.items():
        print(f"\n{'batches of ' + name:<28}{'real target tokens/s':>22}{'ours is faster by':>20}")
        for system, row in rows.items():
            print(f"{system:<28}{row['tokens_per_second']:>22,.0f}{row['ours_is_faster_by']:>19.2f}x")
    if options.out:
        options.out.write_text(json.dumps({"setting": setting, "results": results}, indent=1) + "\n")


def training_steps(recipe: Recipe) -> dict[str, Callable[[Batch], None]]:
    """For each system, a function that learns from one batch."""
    V, smoothing = recipe.tokenizer.vocab_size, recipe.train.label_smoothing
    torch.manual_seed(1)
    ours = EncoderDecoder(recipe.model, V)

    def our_loss(batch: Batch) -> torch.Tensor:
        hidden_MD = ours(batch)
        loss, _ = smoothed_cross_entropy(hidden_MD, batch.labels_L, ours.embedding.weight_VD, smoothing)
        return loss / batch.count

    steps = {"transduce": training_step(ours, our_loss)}
    for name, peer_class in (("torch.nn.Transformer", TorchTransformer), ("Hugging Face Marian", HuggingFaceMarian)):
        peer = peer_class(recipe.model, V).train()
        steps[name] = training_step(
            peer, lambda batch, peer=peer: peer_loss(peer(p := padded(batch)), p.labels_BT, smoothing)
        )
    return steps


def measure(steps: dict[str, Callable[[Batch], None]], batches: list[Batch]) -> dict[str, dict[str, float]]:
    """Speed of each system, and how much faster ours is, batch by batch; the first batch warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for batch in batches:
        for name, step in steps.items():
            began = time.perf_counter()
            step(batch)
            seconds[name].append(time.perf_counter() - began)
    tokens = sum(batch.count for batch in batches[1:])
    return {
        name: {
            "tokens_per_second": tokens / sum(times[1:]),
            "ours_is_faster_by": statistics.median(
                theirs / ours for theirs, ours in zip(times[1:], seconds["transduce"][1:], strict=True)
            ),
        }
        for name, times in seconds.items()
    }


def training_step(model: nn.Module, loss: Callable[[Batch], torch.Tensor]) -> Callable[[Batch], None]:
    """One update of the weights."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step(batch: Batch) -> None:
        loss(batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main()
